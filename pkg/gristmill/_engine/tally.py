"""The account of bad records that an iterator keeps, in the user's process."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
from collections.abc import Sequence

from gristmill._base import log
from gristmill._engine.record_errors import NoOutput, Passed
from gristmill.bad_records import BadRecord, BadRecords, ErrorPolicy
from gristmill.errors import TooManyErrors

LAST_KEPT = 10


class Tally:
    """Counts bad records, logs them, and says when there are too many.

    It is told of them in the order in which outputs are delivered.  `count` are those
    that were passed over, those before a restored state included; `data_source` is what
    the log calls the source.
    """

    def __init__(self, policy: ErrorPolicy, data_source: str) -> None:
        self.count = 0
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
            "Repair the data, or pass a larger max_errors and go on from the last "
            "get_state(), after which nothing is lost."
        ) from error
