"""Bad records on their way from the step that raised to the iterator's account.

A stream collects them while it computes an output.  They travel with that output,
or with the error or the end that came instead, and count once it is delivered.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

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
# Records tried in the place of a bad one: its neighbours, and then ever farther
# ones, so that a bad stretch of a file neither ends a stream nor makes it repeat
# the one good record behind it.
NEIGHBOURS = 8
LAST_DOUBLING = 28

# Stands for the output of a stream that ended after bad records: its turn passes.
NOTHING = object()

# Bad records, and the exception of the last one, packed where it came from a worker.
Passed = tuple[Sequence[BadRecord], BaseException | bytes]


class Mishaps:
    """The bad records of one stream since its last output.

    Attributes:
        records: In the stream's order.
        last: The exception of the last one.
    """

    def __init__(self, stream: int) -> None:
        self.records: list[BadRecord] = []
        self.last: BaseException | None = None
        self._stream = stream

    def add(
        self, error: Exception, place: Place, key: Any, substitute: Any = None
    ) -> None:
        """Remember the record `key`, and the key of the one that took its place."""
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

    def clear(self) -> None:
        """Forget all."""
        if self.records:
            self.records, self.last = [], None

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


def forgivable(error: Exception) -> bool:
    """Whether an exception may be a record's fault."""
    return not isinstance(error, NEVER_FORGIVEN)


def blamed(error: Exception) -> Place | None:
    """The record whose fault an exception is; None where that cannot be said."""
    return place_of(error) if forgivable(error) else None


def stand_ins(position: int, length: int) -> Iterator[int]:
    """Positions of a stream to try in place of one, best first."""
    doublings = (1 << power for power in range(4, LAST_DOUBLING))
    for offset in (*range(1, NEIGHBOURS + 1), *doublings):
        if offset >= length:
            return
        yield (position + offset) % length


def none_stands_in(key: Any, tried: list[Any]) -> TooManyErrors:
    """What to raise where all of `stand_ins`, with these keys, failed as well."""
    others = "there is no other in its stream"
    if tried:
        others = f"so did those tried in its place, {tried}"
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


def send_failure(failure: bytes | None, passed: Passed | None) -> bytes:
    """What a worker sends instead of a failure, or of an end with bad records."""
    return pickle.dumps((failure, passed), 5)


def received_failure(sent: bytes) -> tuple[BaseException | None, Passed | None]:
    """The exception, or None for an end, and the bad records before it."""
    from gristmill._engine import failures

    failure, passed = pickle.loads(sent)
    return None if failure is None else failures.unpack_failure(failure), passed
