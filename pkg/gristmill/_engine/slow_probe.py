"""Decides whether threads read, which saves time only if reads block."""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from gristmill._base import blocked_time

R = TypeVar("R")

# The number of blocks for which a verdict on reads of blocks holds.
BLOCKS_BETWEEN_PROBES = 256
# Threads that wait do not use the processor.  If it was busy for a larger part of the
# time, the threads may have waited for it.
BUSY_SHARE = 0.5


def read_timed(read: Callable[[], R]) -> tuple[R, float, float]:
    """Call `read`; return its result, its duration and the time it waited, in s.

    Both times are for the whole call, unlike those of `SlowProbe.read_timed`.
    """
    start = blocked_time.clocks()
    result = read()
    end = blocked_time.clocks()
    return result, end.wall_s - start.wall_s, blocked_time.waited_s(start, end)


class _MeasuredRead(NamedTuple):
    """The time that a read waited, in seconds, and the clocks at its end."""

    waited_s: float
    end: blocked_time.Clocks


class Trial:
    """Measures reads by threads.

    Any thread may call `read`.  Appending to the list needs no lock.
    """

    def __init__(self) -> None:
        self._start = blocked_time.clocks()
        self._reads: list[_MeasuredRead] = []

    def __len__(self) -> int:
        """Return the number of measured reads."""
        return len(self._reads)

    def read(self, source: Any, key: Any) -> Any:
        """Read and measure one element."""
        start = blocked_time.clocks()
        element = source[key]
        end = blocked_time.clocks()
        self._reads.append(_MeasuredRead(blocked_time.waited_s(start, end), end))
        return element

    def end(self) -> None:
        """Count the time since the start of the trial as one read that waited.

        This is for a trial of a read that native threads make.
        """
        end = blocked_time.clocks()
        self._reads.append(_MeasuredRead(end.wall_s - self._start.wall_s, end))

    def waits(self, slow_s: float) -> bool | None:
        """Return whether the median read waited for longer than `slow_s`.

        Returns None if the processor was so busy that threads may have waited for
        each other.  REQUIRES: at least one read was measured.
        """
        reads = [*self._reads]
        if sorted(reads)[len(reads) // 2].waited_s <= slow_s:
            return False
        last_end = max(reads, key=lambda each: each.end.wall_s).end
        duration_s = last_end.wall_s - self._start.wall_s
        busy_s = last_end.process_s - self._start.process_s
        return True if busy_s < BUSY_SHARE * duration_s else None


class SlowProbe:
    """Measures some reads, and decides for the next ones whether threads should read.

    The caller's own reads are measured first.  If one waits, threads read on trial.
    Not thread-safe, except for reads of the trial.  A user without trials, such as
    `thread_prefetch`, calls only `add`, and sets `until_probe` itself.

    Args:
        slow_s: A read that waits for longer is slow, in seconds.
        reads: The number of measured reads that a verdict needs.
        interval: The number of reads for which a verdict holds.
        waits: The verdict before the first measured read.

    Attributes:
        waits: The verdict: True if reads wait, so threads should read.  None if that is
            unknown: during a trial, and after a trial without a result, when the
            caller's own reads decide.  Never None if only `add` is called.
        until_probe: The number of reads until the next probe.  The user of the probe
            counts them down.
        trial: The trial under way, in which threads read, or None.
        record_s: The duration of the last read that `read_timed` measured, in seconds
            for each record.
    """

    __slots__ = (
        "_last_was_long",
        "_measured_s",
        "_reads",
        "interval",
        "record_s",
        "slow_s",
        "trial",
        "until_probe",
        "waits",
    )

    def __init__(
        self, slow_s: float, reads: int, interval: int, waits: bool | None = False
    ) -> None:
        self.slow_s = slow_s
        self.interval = interval
        self.waits = waits
        self.until_probe = 0
        self.trial: Trial | None = None
        self.record_s = math.inf
        self._reads = reads
        # True if the last read took longer than `slow_s`, by its duration alone.
        self._last_was_long = True
        # The times that the last reads of the caller waited.
        self._measured_s: collections.deque[float] = collections.deque(maxlen=reads)

    def read_timed(self, read: Callable[[], R], count: int) -> tuple[R, float | None]:
        """Call `read`; return its result and the time it waited, in seconds.

        The time is for each of `count` records.  After a quick read, only the duration
        is measured, because the function `read_timed` takes some microseconds.  If that
        duration is long, the time waited is None, for unknown.  After a quick read it
        is 0, because a read cannot wait for longer than it lasts.
        """
        waited_s = None
        if self._last_was_long:
            result, duration_s, waited_s = read_timed(read)
            waited_s /= count
        else:
            start_s = time.perf_counter()
            result = read()
            duration_s = time.perf_counter() - start_s
        self.record_s = duration_s / count
        self._last_was_long = self.record_s > self.slow_s
        return result, waited_s if self._last_was_long else 0.0

    def add(self, seconds: float) -> bool:
        """Add a measured time; if there are enough, set `waits` and return True.

        This begins no trial, and does not end the probe: the caller does that.
        """
        measured_s = self._measured_s
        measured_s.append(seconds)
        if len(measured_s) < self._reads:
            return False
        # Use the median: one read may wait for its turn, another may open a file.
        self.waits = sorted(measured_s)[self._reads // 2] > self.slow_s
        return True

    def add_read(self, waited_s: float | None) -> bool:
        """Add a read that `read_timed` measured; return whether to stop probing.

        The caller stops after a verdict, or if threads read on trial.  Unlike `add`,
        this may begin a trial, and ends the probe after a verdict.
        """
        if self.trial is not None:
            return True
        after_trial = self.waits is None
        if waited_s is None:  # The next read is measured.
            if not after_trial:
                self._measured_s.clear()
            return False
        if waited_s > self.slow_s and not after_trial:
            self.begin_trial()
            return True
        if not self.add(waited_s):
            return False
        self.decide(self.waits)
        return True

    def begin_trial(self) -> None:
        """Leave the verdict to the next reads by threads; `judge_trial` decides."""
        self.waits = None
        self.until_probe = 0
        self._measured_s.clear()
        self.trial = Trial()

    def judge_trial(self) -> None:
        """Decide by the trial if it has enough reads."""
        trial = self.trial
        if trial is not None and len(trial) >= self._reads:
            self.decide(trial.waits(self.slow_s))

    def decide(self, waits: bool | None) -> None:
        """End the probe.  The next read is probed if `waits` is None."""
        self.trial = None
        self.waits = waits
        self.until_probe = 0 if waits is None else self.interval
        self._measured_s.clear()
