"""Measures the time of each stage for a sample of the outputs.

Two calls in a row are measured, the first in wall time and the second in CPU time.
Then no call is measured for about `PAUSE_NS`, so that the cost is negligible.  In each
process, `_hot.run.end` and `_hot.run.run_block` add up the times by stage name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from gristmill._base.types import T
from gristmill._engine.recording import (
    WAIT,
    Recorder,
    current_recorder,
    start_in_worker,
)
from gristmill._hot import run as hot_run

# The time without measurements after two measured calls, and its limit in calls.
PAUSE_NS = 500_000_000
MAX_PAUSE_CALLS = 8192
# The number of the first call to measure.  Earlier calls open files and fill caches.
FIRST_MEASURED = 2
CLOCKS = (time.CLOCK_MONOTONIC, time.CLOCK_THREAD_CPUTIME_ID)
# Stages other than the user's steps.  No class can have such a name.
READ = hot_run.READING
COLLATE = ":collate"
PIN = ":pin"
# The time of an output that no other stage accounts for.
REST = ":rest"
SEND = ":send"
RECEIVE = ":receive"
# These limits make the JSON of `StageTimes.text` fit into the worker's text.
MAX_NAMES = 20
NAME_CHARS = 48


def sleeps() -> int:
    """Return the number of times that this thread has blocked."""
    count: int = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return count


class StageTime(NamedTuple):
    """A stage's own time for one output, in s, and the fraction spent on the CPU."""

    seconds: float
    cpu_share: float


@dataclasses.dataclass
class StageTotals:
    """The time of each stage over a number of outputs, by one clock, in ns."""

    outputs: int = 0
    spent: dict[str, int] = dataclasses.field(default_factory=dict)


class StageTimes:
    """Measures some of the calls that compute outputs.

    The thread that computes them calls all methods.  Others may read `by_clock`.

    The caller decrements `calls_until_measured` before each call, and measures the
    call if it is 0.  While a recording runs, all calls are measured.

    Args:
        worker: The number of the worker whose units the calls compute; None in another
            process.

    Attributes:
        calls_until_measured: The number of calls up to and including the next one to
            measure.
    """

    def __init__(self, worker: int | None = None) -> None:
        if worker is not None:
            start_in_worker(worker)
        self._recorder = current_recorder()
        self.calls_until_measured = 1 if self._recorder else FIRST_MEASURED
        self._in_worker = worker is not None
        # The end of the last recorded call, or 0.
        self._last_end_ns = 0
        self.by_clock = StageTotals(), StageTotals()
        # The index of the next measurement's clock in `CLOCKS` and `by_clock`.
        self._clock = 0
        # The duration of the call that was last measured in wall time.
        self._wall_call_ns = 0

    @contextlib.contextmanager
    def measuring(self) -> Iterator[StageTotals]:
        """Measure the body of the `with` statement; the caller counts the outputs."""
        measured = self.by_clock[self._clock]
        spent: dict[str, int] = {}
        sleeps_before, cpu_ns = sleeps(), time.thread_time_ns()
        intervals: list[tuple[str, int, int]] | None = None
        start_ns = time.perf_counter_ns()
        if self._recorder is not None:
            intervals = []
            if self._in_worker and self._last_end_ns:
                intervals.append((WAIT, self._last_end_ns, start_ns))
        hot_run.measure(spent, CLOCKS[self._clock], intervals)
        try:
            yield measured
        finally:
            hot_run.measure(None)
            duration_ns = max(time.perf_counter_ns() - start_ns, 1)
            own_share = 1.0
            if self._clock == 0 and sleeps() == sleeps_before:
                # The thread never blocked, so other programs used the rest of the time.
                own_share = min((time.thread_time_ns() - cpu_ns) / duration_ns, 1.0)
            for name, ns in spent.items():
                measured.spent[name] = measured.spent.get(name, 0) + int(ns * own_share)
            self._clock = 1 - self._clock
            if self._clock:
                self._wall_call_ns, self.calls_until_measured = duration_ns, 1
            else:
                # Use the shorter call: measuring adds time, mostly with the CPU clock.
                shorter_ns = min(self._wall_call_ns, duration_ns)
                self.calls_until_measured = min(
                    max(PAUSE_NS // shorter_ns, 1), MAX_PAUSE_CALLS
                )
            if self._recorder is not None and intervals is not None:
                self._record(self._recorder, intervals)

    def _record(
        self, recorder: Recorder, intervals: list[tuple[str, int, int]]
    ) -> None:
        """Record the intervals of a call, and measure the next call."""
        recorder.add(intervals)
        if self._in_worker:  # It may be killed at any time.
            recorder.flush()
        if recorder.has_ended or current_recorder() is not recorder:
            self._recorder = None
            return
        self.calls_until_measured = 1
        self._last_end_ns = time.perf_counter_ns()

    def measure(self, stage: str, compute: Callable[..., T], *arguments: Any) -> T:
        """Return the output that `compute` makes; measure the call as `stage`."""
        with self.measuring() as measured:
            stage_start = hot_run.begin()
            output = compute(*arguments)
            measured.outputs += hot_run.end(stage, stage_start)
            return output

    def text(self) -> str:
        """Return the measurements as JSON, which `sum_texts` parses.

        It is [outputs in wall time, outputs in CPU time, rows of (name, wall ns, CPU
        ns)], with the stages that took the most wall time.
        """
        wall, cpu = self.by_clock
        names = sorted(wall.spent, key=wall.spent.__getitem__, reverse=True)[:MAX_NAMES]
        rows = [
            (name[:NAME_CHARS], wall.spent[name], cpu.spent.get(name, 0))
            for name in names
        ]
        return json.dumps((wall.outputs, cpu.outputs, rows), separators=(",", ":"))


def sum_texts(texts: Iterable[bytes]) -> tuple[StageTotals, StageTotals]:
    """Return the sums of the workers' measurements; skip texts that are not JSON."""
    wall, cpu = StageTotals(), StageTotals()
    for text in texts:
        try:
            outputs, cpu_outputs, rows = json.loads(text)
        except ValueError:
            continue
        wall.outputs += outputs
        cpu.outputs += cpu_outputs
        for name, wall_ns, cpu_ns in rows:
            wall.spent[name] = wall.spent.get(name, 0) + wall_ns
            cpu.spent[name] = cpu.spent.get(name, 0) + cpu_ns
    return wall, cpu


def mean_times(by_clock: tuple[StageTotals, StageTotals]) -> dict[str, StageTime]:
    """Return the mean time of each stage for one output."""
    wall, cpu = by_clock
    times: dict[str, StageTime] = {}
    for name, spent in wall.spent.items():
        seconds = max(spent, 0) / max(wall.outputs, 1) / 1e9
        cpu_share = 1.0
        if cpu.outputs and seconds:
            cpu_s = cpu.spent.get(name, 0) / cpu.outputs / 1e9
            cpu_share = min(max(cpu_s / seconds, 0.0), 1.0)
        times[name] = StageTime(seconds, cpu_share)
    return times
