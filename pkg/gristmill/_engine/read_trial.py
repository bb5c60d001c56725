"""Reads by threads on trial, to find out if threads save time."""

from __future__ import annotations

from typing import Any, NamedTuple

from gristmill._base import waiting

# Reads by which a trial is judged, at least.
ENOUGH_READS = 5
# Threads that wait do not use the processor.  If it was busy for a larger part of the
# time, the threads may have waited for it.
BUSY_SHARE = 0.5


class _Measured(NamedTuple):
    waited_s: float
    ended: waiting.Clocks


class ReadTrial:
    """Reads elements in threads, and measures whether that waits for anything.

    Any threads may call `read`.

    Attributes:
        ahead: How many reads may be begun ahead of need.
    """

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self._began = waiting.clocks()
        self._measured: list[_Measured] = []

    def read(self, source: Any, key: Any) -> Any:
        """Read one element."""
        began = waiting.clocks()
        element = source[key]
        ended = waiting.clocks()
        self._measured.append(_Measured(waiting.waited_s(began, ended), ended))
        return element

    @property
    def is_over(self) -> bool:
        """True if there are enough reads for `waits`."""
        return len(self._measured) >= ENOUGH_READS

    def waits(self, slow_s: float) -> bool | None:
        """Return True if the usual read waits for longer than `slow_s`.

        None if that is unknown: the processor was so busy that threads may have waited
        for each other.
        """
        measured = [*self._measured]
        by_wait = sorted(measured)
        if by_wait[len(measured) // 2].waited_s <= slow_s:
            return False
        last = max(measured, key=lambda each: each.ended.wall_s).ended
        passed_s = last.wall_s - self._began.wall_s
        busy_s = last.process_s - self._began.process_s
        return True if busy_s < BUSY_SHARE * passed_s else None
