"""Bad records on their way from the step that raised to the iterator's account.

A stream collects them while it computes an output.  They travel with that output,
or with the error or the end that came instead, and count once it is delivered.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from typing import Any

from gristmill._base import log
from gristmill._hot.place import Place, place_of
from gristmill.bad_records import BadRecord, describe_error, describe_key
from gristmill.errors import StateMismatch, TooManyErrors, WorkerDied

# These say something about the engine or the machine, not about a record.
NEVER_FORGIVEN = (
    StopIteration,
    MemoryError,
    StateMismatch,
    TooManyErrors,
    WorkerDied,
)
# Records tried in the place of a bad one: its neighbours, then ever farther ones,
# so that a bad stretch of a file neither ends a stream nor makes it repeat the one
# good record behind it, and then others from all over the stream.
NEIGHBOURS = 8
LAST_DOUBLING = 28
MOST_TRIED = 1024
# Of the keys of those, so many are named.
MOST_NAMED = 16

# Bad records without an element after which a stream passes its turn.
MANY = 1000

# Stands for the output of a stream that met bad records alone: its turn passes.
NOTHING = object()
# Stands for one that was given up after too many: as well, and the output is due again.
GIVEN_UP = object()

# Bad records, and the exception of the last one, packed where it came from a worker.
Passed = tuple[Sequence[BadRecord], BaseException | bytes]


class Overrun(BaseException):
    """Ends the making of an output that has met more bad records than may be.

    As an interrupt does: its stream stays where it was before the output, which is
    due again, and is then given up later.
    """


class Mishaps:
    """The bad records of one stream since its last output.

    Args:
        stream: Number of the stream.
        patience: Bad records of one output after which it is given up; None for
            never.

    Attributes:
        records: In the stream's order.
        last: The exception of the last one.
        alone: Whether the output in work has no element yet.
    """

    def __init__(self, stream: int, patience: int | None = None) -> None:
        self.records: list[BadRecord] = []
        self.last: BaseException | None = None
        self.alone = True
        self._stream = stream
        self._usual_patience = patience
        self._patience: int | None = None
        self._next_patience = patience

    @property
    def many(self) -> bool:
        """Whether they should be told before there is an element."""
        return self.alone and len(self.records) >= MANY

    def add(
        self, error: Exception, place: Place, key: Any, substitute: Any = None
    ) -> None:
        """Remember the record `key`, and the key of the one that took its place.

        Raises:
            Overrun: They are too many for one output.
        """
        kind, message = describe_error(error)
        self.last = error
        self.records.append(
            BadRecord(
                key=describe_key(key),
                index=place.record_index,
                stream=self._stream,
                operation=place.operation or "read",
                error=kind,
                message=message,
                substitute=describe_key(substitute),
            )
        )
        count = len(self.records)
        if self._patience is not None and count > self._patience:
            self._next_patience = max(2 * count, MANY)
            raise Overrun
        if count > MANY and _is_power_of_ten(count):
            log.warning(
                "Stream %d has met %d bad records and waits for the rest of an "
                "output. The last one is %s: %s: %s",
                self._stream,
                count,
                self.records[-1].key,
                kind,
                message,
            )

    def begin(self) -> None:
        """Forget all: an output is begun, or one that was given up once more."""
        if self.records:
            self.records, self.last = [], None
        self.alone = True
        self._patience, self._next_patience = (
            self._next_patience,
            self._usual_patience,
        )

    def pause(self) -> None:
        """Be patient until `begin`: what was given before is made again."""
        self._patience = None

    @property
    def passed(self) -> Passed:
        """What to tell the account, where there are any."""
        assert self.last is not None
        return self.records, self.last

    def packed(self, worker: int) -> Passed | None:
        """As `passed`, to be sent; None where there are none."""
        if self.last is None:
            return None
        from gristmill._engine import failures

        return self.records, failures.pack_failure(self.last, worker)


def _is_power_of_ten(count: int) -> bool:
    return str(count).strip("0") == "1"


def forgivable(error: Exception) -> bool:
    """Whether an exception may be a record's fault."""
    return not isinstance(error, NEVER_FORGIVEN)


def blamed(error: Exception) -> Place | None:
    """The record whose fault an exception is; None where that cannot be said."""
    return place_of(error) if forgivable(error) else None


def stand_ins(position: int, length: int) -> Iterator[int]:
    """Positions of a stream to try in place of one, best first.

    Its neighbours, those at doubling distances, and then any: up to `MOST_TRIED` in
    all, which is every other one of a stream of no more.
    """
    doublings = (1 << power for power in range(4, LAST_DOUBLING))
    near = [n for n in (*range(1, NEIGHBOURS + 1), *doublings) if n < length]
    for offset in near:
        yield (position + offset) % length
    # In an order of its own for each: bad records side by side find different ones.
    order = random.Random(position)
    known, left = {0, *near}, MOST_TRIED - len(near)
    if length <= MOST_TRIED:
        rest = [offset for offset in range(length) if offset not in known]
        rest.sort(key=lambda _: order.random())
        yield from ((position + offset) % length for offset in rest)
        return
    while left > 0:
        offset = int(order.random() * length)
        if offset not in known:
            known.add(offset)
            left -= 1
            yield (position + offset) % length


def none_stands_in(key: Any, tried: list[Any]) -> TooManyErrors:
    """What to raise where all of `stand_ins`, with these keys, failed as well."""
    others = "there is no other in its stream"
    if tried:
        named = ", ".join(map(repr, tried[:MOST_NAMED]))
        more = len(tried) - MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        others = f"so did those tried in its place, [{named}]{rest}"
    return TooManyErrors(
        f"Record {key} failed, and {others}. Repair the data, or pass "
        'on_error="skip" to leave bad records out.'
    )


def send_output(element: Any, mishaps: Mishaps, worker: int) -> tuple[Any, ...]:
    """What a worker sends instead of an element.  Its arrays stay where they are."""
    if not mishaps.records:
        return (element,)
    return element, pickle.dumps(mishaps.packed(worker), 5)


def received_output(sent: tuple[Any, ...]) -> tuple[Any, Passed | None]:
    """The element and the bad records that `send_output` was given."""
    if len(sent) == 1:
        return sent[0], None
    return sent[0], pickle.loads(sent[1])


def send_failure(
    failure: bytes | None, passed: Passed | None, overrun: bool = False
) -> bytes:
    """What a worker sends instead of a failure, or of bad records alone."""
    return pickle.dumps((failure, passed, overrun), 5)


def received_failure(sent: bytes) -> tuple[BaseException | None, Passed | None]:
    """The exception, or None for bad records alone, and the bad records before it."""
    from gristmill._engine import failures

    failure, passed, overrun = pickle.loads(sent)
    if overrun:
        return Overrun(), passed
    return None if failure is None else failures.unpack_failure(failure), passed
