"""Records that fail: what one stream does about them, and the account of all streams.

A stream collects them while it computes an output.  They travel with that output,
or with the error or the end that came instead, and count once it is delivered.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from gristmill._base import log
from gristmill._hot.place import Place, place_of
from gristmill.bad_records import (
    BadRecord,
    BadRecords,
    ErrorPolicy,
    OnError,
    describe_error,
    describe_key,
)
from gristmill.errors import StateMismatch, TooManyErrors, WorkerDied

T = TypeVar("T")

# These say something about the engine or the machine, not about a record.
NEVER_FORGIVEN = (
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
# What to do about too many errors.
ADVICE = (
    "Repair the data, or pass a larger max_errors and go on from the last get_state(),"
    " after which nothing is lost."
)
# Of those that an iterator met, so many are shown.
LAST_KEPT = 10


class NoOutput(enum.Enum):
    """What a stream's turn gave instead of an output or an exception."""

    # Bad records alone.
    NOTHING = enum.auto()
    # More of them than one output may meet: it is due again.
    GIVEN_UP = enum.auto()


# Bad records, and the exception of the last one.
Passed = tuple[Sequence[BadRecord], BaseException]


class GiveUp(BaseException):
    """Ends the making of an output that has met more bad records than may be.

    As an interrupt does: its stream stays where it was before the output, which is
    due again.
    """


class RecordErrors:
    """The bad records of one stream since its last output, and what it does about them.

    An output that meets more of them than `limit` is given up.

    Attributes:
        records: In the stream's order.
        last: The exception of the last one.
        alone: Whether the output in work has no element yet.
    """

    def __init__(
        self, stream: int, on_error: OnError = "raise", limit: int | None = None
    ) -> None:
        self.records: list[BadRecord] = []
        self.last: BaseException | None = None
        self.alone = True
        self._stream = stream
        self._on_error = on_error
        self._limit = limit
        # The limit of the output in work, and that of one which was given up.
        self._limit_of_output: int | None = None
        self._raised_limit: int | None = None

    @property
    def many(self) -> bool:
        """Whether they should be told before there is an element."""
        return self.alone and len(self.records) >= MANY

    @property
    def passed(self) -> Passed | None:
        """What to tell the account; None where there are none."""
        return None if self.last is None else (self.records, self.last)

    def begin(self) -> None:
        """Forget all: an output is begun, or one that was given up once more."""
        self.records, self.last, self.alone = [], None, True
        raised, self._raised_limit = self._raised_limit, None
        self._limit_of_output = self._limit if raised is None else raised

    def replay(self) -> None:
        """Know no limit until `begin`: what was given before is made again."""
        self._limit_of_output = None

    def resolve(
        self,
        error: Exception,
        key: Any,
        others: Iterable[Any] = (),
        become: Callable[[Any], Sequence[T]] = lambda other: (),
    ) -> Sequence[T]:
        """What takes the place of a record that failed.

        `others` are the keys of those to try, and what they `become` in its place.

        Raises:
            Exception: `error`, where it is no record's fault or is to be raised.
            TooManyErrors: No other record takes its place.
            GiveUp: They are too many for one output.
        """
        place = place_of(error)
        forgiven = self._on_error != "raise" and not isinstance(error, NEVER_FORGIVEN)
        if place is None or not forgiven:
            raise error
        if self._on_error == "skip":
            self._add(error, place, key)
            return ()
        tried: list[Any] = []
        for other in others:
            try:
                made = become(other)
            except NEVER_FORGIVEN:
                raise
            except Exception:
                tried.append(other)
                continue
            self._add(error, place, key, other)
            return made
        raise _none_stands_in(key, tried) from error

    def _add(
        self, error: Exception, place: Place, key: Any, substitute: Any = None
    ) -> None:
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
        count, limit = len(self.records), self._limit_of_output
        if limit is not None and count > limit:
            self._raised_limit = max(2 * count, MANY)
            raise GiveUp
        if count > MANY and str(count).strip("0") == "1":
            log.warning(
                "Stream %d has met %d bad records and waits for the rest of an "
                "output. The last one is %s: %s: %s",
                self._stream,
                count,
                self.records[-1].key,
                kind,
                message,
            )


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


def _none_stands_in(key: Any, tried: list[Any]) -> TooManyErrors:
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


class Tally:
    """Counts bad records, logs them, and says when there are too many.

    It is told of them in the order in which outputs are delivered.  `count` are those
    that were passed over, those before a restored state included; `data_source` is what
    the log calls the source.
    """

    def __init__(
        self, policy: ErrorPolicy, data_source: str, advice: str = ADVICE
    ) -> None:
        self.count = 0
        self._advice = advice
        self._policy = policy
        self._data_source = data_source
        self._met = 0
        self._last: collections.deque[BadRecord] = collections.deque(maxlen=LAST_KEPT)
        # Bad records in all, where the output due was held back for them.
        self._held_back = 0

    @property
    def bad_records(self) -> BadRecords:
        """The count and the last few."""
        return BadRecords(self.count, tuple(self._last))

    def restart(self, count: int) -> None:
        """Go on from the count of a restored state."""
        self.count = count
        self._held_back = 0

    def account(self, passed: Passed, instead: BaseException | NoOutput | None) -> None:
        """Take those before an output, or before what came instead of one.

        Raises:
            TooManyErrors: Their number passes the limit, or is larger than when an
                output was given up before.  The output is due again, and taken then.
        """
        limit, total = self._policy.max_errors, self.count + len(passed[0])
        if instead is NoOutput.GIVEN_UP:
            if total > self._held_back:
                self._hold_back(passed)
            return
        failed = isinstance(instead, BaseException)
        beyond = limit is not None and total > limit and not self._held_back
        if beyond and not failed:
            self._hold_back(passed)
        self._write(passed[0])
        self._log(passed[0])
        self.count = total
        self._last.extend(passed[0])
        if not failed:
            self._held_back = 0

    def _log(self, records: Sequence[BadRecord]) -> None:
        before, self._met = self._met, self._met + len(records)
        # The first, the 10th, the 100th...
        if len(str(self._met)) > len(str(before)) or not before:
            last = records[-1]
            log.warning(
                "Bad records so far: %d, on_error=%r. Record %s failed in %s: %s: %s",
                self._met,
                self._policy.on_error,
                last.key,
                last.operation,
                last.error,
                last.message,
            )

    def _write(self, records: Sequence[BadRecord]) -> None:
        path = self._policy.quarantine
        if path is None:
            return
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        lines = []
        for record in records:
            entry = dataclasses.asdict(record)
            entry |= {"data_source": self._data_source, "time": now}
            lines.append(json.dumps(entry) + "\n")
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(lines))

    def _hold_back(self, passed: Passed) -> None:
        records, error = passed
        self._held_back = self.count + len(records)
        path = self._policy.quarantine
        where = ""
        if path is not None:
            where = f" Those of the outputs that were delivered are listed in {path}."
        last = "; ".join(
            f"record {bad.key} in {bad.operation} ({bad.error}: {bad.message})"
            for bad in [*self._last, *records][-LAST_KEPT:]
        )
        raise TooManyErrors(
            f"{self._held_back} records failed, and "
            f"max_errors={self._policy.max_errors}. The last were: {last}.{where} "
            f"{self._advice}"
        ) from error
