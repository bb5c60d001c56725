"""Handles bad records: `RecordErrors` in a stream, the `ErrorCounter` of all streams.

`RecordErrors` lives where the stream runs, usually in a worker, and `ErrorCounter` in
the user's process.  A stream collects bad records while it computes an output.  They
are sent with that output, or with the error or the end of the stream that replaces it.
They count when it is delivered.

An output that meets more bad records than a limit is abandoned, and `TurnSkipped.
TOO_MANY` is sent in its place, so that `ErrorCounter` can raise `TooManyErrors`.  If
the user continues, the output is computed again, with a larger limit.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from gristmill._base import log
from gristmill._hot.error_location import ErrorLocation, location_of
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

# Errors of the engine or the machine, not of a record.
NOT_RECORD_ERRORS = (
    MemoryError,
    StateMismatch,
    TooManyErrors,
    WorkerDied,
)
# Records tried in the place of a bad one: first the next ones, then records at
# distances 2**4 to 2**(END_POWER - 1), and then random records of the stream.  So a bad
# stretch of a file does not end the stream, and does not repeat the one good record
# after it.
NEIGHBORS = 8
END_POWER = 28
MAX_TRIED = 1024
# The most keys of tried records that an error names.
MAX_NAMED_KEYS = 16

# The number of bad records without an element after which a stream passes its turn.
SKIP_LIMIT_PER_TURN = 1000
# The remedy for too many errors.
ADVICE = (
    "Repair the data, or pass a larger max_errors and continue from the last"
    " get_state(), which loses no output."
)
# The number of an iterator's last bad records that are shown.
SHOWN_RECORDS = 10


class TurnSkipped(enum.Enum):
    """The reason why a stream's turn gave neither an output nor an exception."""

    # The stream met `SKIP_LIMIT_PER_TURN` bad records or its end, and no good record.
    ONLY_BAD_RECORDS = enum.auto()
    # The output met more bad records than its limit, and was abandoned.
    TOO_MANY = enum.auto()


# Bad records, and the exception of the last one.
ErrorSummary = tuple[Sequence[BadRecord], BaseException]


class OutputAbandoned(BaseException):
    """Raised to abandon an output that met too many bad records.

    Like KeyboardInterrupt, it leaves the stream before that output, so the next call
    computes the output again.
    """


class RecordErrors:
    """Collects and replaces the bad records of one stream since its last output.

    Not thread-safe: the thread that computes the output calls the methods.

    Args:
        stream: The number of the stream.
        on_error: What to do with a bad record.
        limit: An output that meets more bad records is abandoned.  None: no limit.

    Attributes:
        records: The bad records, in the stream's order.
        last: The exception of the last bad record.
        is_first_element: Whether the output being computed has no element yet.
    """

    def __init__(
        self, stream: int, on_error: OnError = "raise", limit: int | None = None
    ) -> None:
        self.records: list[BadRecord] = []
        self.last: BaseException | None = None
        self.is_first_element = True
        self._stream = stream
        self._on_error = on_error
        self._limit = limit
        # The limit of the output being computed.
        self._limit_of_output: int | None = None
        # The limit of the next output, if it is one that was abandoned.
        self._raised_limit: int | None = None

    @property
    def should_pass_turn(self) -> bool:
        """True if the turn should end with only bad records and no element."""
        return self.is_first_element and len(self.records) >= SKIP_LIMIT_PER_TURN

    @property
    def summary(self) -> ErrorSummary | None:
        """The argument of `ErrorCounter.account`, or None without bad records."""
        return None if self.last is None else (self.records, self.last)

    def begin(self) -> None:
        """Clear the records before an output, or before another try of the same one."""
        self.records, self.last, self.is_first_element = [], None, True
        raised, self._raised_limit = self._raised_limit, None
        self._limit_of_output = self._limit if raised is None else raised

    def lift_limit(self) -> None:
        """Lift the limit until `begin`, to compute delivered outputs again."""
        self._limit_of_output = None

    def replace_record(
        self,
        error: Exception,
        key: Any,
        candidates: Iterable[Any] = (),
        recompute: Callable[[Any], Sequence[T]] = lambda candidate: (),
    ) -> Sequence[T]:
        """Return the elements that replace a record that failed.

        Args:
            error: The record's exception.
            key: The record's key.
            candidates: The keys of records to try in its place.
            recompute: Called with one of these keys; returns the elements of that
                record, with the index and the generator of the failed one.

        Raises:
            Exception: `error`, if a record did not cause it, or on_error is "raise".
            TooManyErrors: All other records failed, too.
            OutputAbandoned: The output has met more bad records than its limit.
        """
        location = location_of(error)
        if location is None or self._on_error == "raise":
            raise error
        if isinstance(error, NOT_RECORD_ERRORS):
            raise error
        if self._on_error == "skip":
            self._add(error, location, key)
            return ()
        tried_keys: list[Any] = []
        for candidate in candidates:
            try:
                elements = recompute(candidate)
            except NOT_RECORD_ERRORS:
                raise
            except Exception:
                tried_keys.append(candidate)
                continue
            self._add(error, location, key, candidate)
            return elements
        raise _no_substitute_error(key, tried_keys) from error

    def _add(
        self,
        error: Exception,
        location: ErrorLocation,
        key: Any,
        substitute: Any = None,
    ) -> None:
        kind, message = describe_error(error)
        self.last = error
        self.records.append(
            BadRecord(
                key=describe_key(key),
                index=location.record_index,
                stream=self._stream,
                operation=location.operation or "read",
                error=kind,
                message=message,
                substitute=describe_key(substitute),
            )
        )
        count, limit = len(self.records), self._limit_of_output
        if limit is not None and count > limit:
            # If the user continues, the next try gets at least twice as far.
            self._raised_limit = max(2 * count, SKIP_LIMIT_PER_TURN)
            raise OutputAbandoned
        # Log the 10,000th, the 100,000th, ...
        if count > SKIP_LIMIT_PER_TURN and str(count).strip("0") == "1":
            log.warning(
                "Stream %d has met %d bad records and still computes the same output."
                " The last one is %s: %s: %s",
                self._stream,
                count,
                self.records[-1].key,
                kind,
                message,
            )


def substitute_candidates(position: int, length: int) -> Iterator[int]:
    """Yield positions of a stream to try in place of one, best first.

    They are the next positions, positions at doubling distances, and then random ones,
    up to `MAX_TRIED` in all.  In a stream of at most `MAX_TRIED` records, they are all
    other positions.
    """
    doublings = (1 << power for power in range(4, END_POWER))
    near_offsets = [n for n in (*range(1, NEIGHBORS + 1), *doublings) if n < length]
    for offset in near_offsets:
        yield (position + offset) % length
    # The order depends on the position, so adjacent bad records get different ones.
    order = random.Random(position)
    known, remaining = {0, *near_offsets}, MAX_TRIED - len(near_offsets)
    if length <= MAX_TRIED:
        other_offsets = [offset for offset in range(length) if offset not in known]
        other_offsets.sort(key=lambda _: order.random())
        yield from ((position + offset) % length for offset in other_offsets)
        return
    while remaining > 0:
        offset = int(order.random() * length)
        if offset not in known:
            known.add(offset)
            remaining -= 1
            yield (position + offset) % length


def _no_substitute_error(key: Any, tried_keys: list[Any]) -> TooManyErrors:
    """Return the exception for a bad record whose substitutes all failed, too."""
    outcome = "there is no other record in its stream"
    if tried_keys:
        named = ", ".join(map(repr, tried_keys[:MAX_NAMED_KEYS]))
        unnamed_count = len(tried_keys) - MAX_NAMED_KEYS
        unnamed = f" and {unnamed_count} more" if unnamed_count > 0 else ""
        outcome = f"so did those tried in its place, [{named}]{unnamed}"
    return TooManyErrors(
        f"Record {key} failed, and {outcome}. Repair the data, or pass "
        'on_error="skip" to skip bad records.'
    )


class ErrorCounter:
    """Counts and logs bad records, and raises an error if there are too many.

    `account` is called by the consumer's thread, in the order of delivered outputs.

    Args:
        policy: The limit and the quarantine file.
        data_source: The name of the source in the quarantine file.
        advice: The last sentence of the error.

    Attributes:
        count: The number of bad records skipped or substituted, including those before
            a restored state.
    """

    def __init__(
        self, policy: ErrorPolicy, data_source: str, advice: str = ADVICE
    ) -> None:
        self.count = 0
        self._advice = advice
        self._policy = policy
        self._data_source = data_source
        self._logged_count = 0
        self._last_records: collections.deque[BadRecord] = collections.deque(
            maxlen=SHOWN_RECORDS
        )
        # The total with which `TooManyErrors` was raised for the output that is due; 0
        # if it was not.
        self._rejected_total = 0

    @property
    def bad_records(self) -> BadRecords:
        """The number of bad records, and the last few of them."""
        return BadRecords(self.count, tuple(self._last_records))

    def restore_count(self, count: int) -> None:
        """Continue with the count of a restored state."""
        self.count = count
        self._rejected_total = 0

    def account(
        self, summary: ErrorSummary, replacement: BaseException | TurnSkipped | None
    ) -> None:
        """Count the bad records before an output, or before its replacement.

        Args:
            summary: The bad records.
            replacement: The exception or `TurnSkipped` in place of the output, if any.
                With an exception, the limit does not apply: that exception is raised.

        Raises:
            TooManyErrors: The total exceeds the limit, or an output was abandoned with
                a larger total than before.  The output is due again, and the next call
                accepts it.
        """
        records, _ = summary
        limit, total = self._policy.max_errors, self.count + len(records)
        if replacement is TurnSkipped.TOO_MANY:
            if total > self._rejected_total:
                self._raise_too_many(summary)
            return
        failed = isinstance(replacement, BaseException)
        exceeds_limit = limit is not None and total > limit and not self._rejected_total
        if exceeds_limit and not failed:
            self._raise_too_many(summary)
        self._write_quarantine(records)
        self._log(records)
        self.count = total
        self._last_records.extend(records)
        if not failed:
            self._rejected_total = 0

    def _log(self, records: Sequence[BadRecord]) -> None:
        earlier_count = self._logged_count
        self._logged_count += len(records)
        # Log the first, the 10th, the 100th, ...
        if len(str(self._logged_count)) > len(str(earlier_count)) or not earlier_count:
            last = records[-1]
            log.warning(
                "Bad records so far: %d, on_error=%r. Record %s failed in %s: %s: %s",
                self._logged_count,
                self._policy.on_error,
                last.key,
                last.operation,
                last.error,
                last.message,
            )

    def _write_quarantine(self, records: Sequence[BadRecord]) -> None:
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

    def _raise_too_many(self, summary: ErrorSummary) -> NoReturn:
        records, error = summary
        self._rejected_total = self.count + len(records)
        path = self._policy.quarantine
        where = ""
        if path is not None:
            where = f" The bad records of delivered outputs are listed in {path}."
        last_texts = "; ".join(
            f"record {bad.key} in {bad.operation} ({bad.error}: {bad.message})"
            for bad in [*self._last_records, *records][-SHOWN_RECORDS:]
        )
        raise TooManyErrors(
            f"At most max_errors={self._policy.max_errors} records may fail, but"
            f" {self._rejected_total} records failed. The last were:"
            f" {last_texts}.{where} {self._advice}"
        ) from error
