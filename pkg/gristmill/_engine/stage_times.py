"""Measures what the stages of some outputs take, so few that it costs next to nothing.

Two calls in a row are measured, the first by the clock and the second by that of the
processor; then none for about `REST_NS`.  Stages are told by name to `_hot.run.end`,
and by `_hot.run.run_block`, in whatever process they run.
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
from gristmill._hot import run as hot_run

REST_NS = 500_000_000
MOST_REST = 8192
# The first calls open files and fill caches.
FIRST = 2
CLOCKS = (time.CLOCK_MONOTONIC, time.CLOCK_THREAD_CPUTIME_ID)
# Stages that are no steps of the user's; no class has such a name.
READ = hot_run.READING
COLLATE = ":collate"
PIN = ":pin"
# What is left of an output.
REST = ":rest"
SEND = ":send"
RECEIVE = ":receive"
# What is told of a worker fits into its text.
TOLD = 20
NAME_CHARS = 48


def sleeps() -> int:
    """How often this thread has waited for something."""
    count: int = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return count


class StageTime(NamedTuple):
    """A stage's own time of one output, in s, and the part in which it computed."""

    seconds: float
    cpu_share: float


@dataclasses.dataclass
class Measured:
    """What the stages took of some outputs, by one clock, in ns."""

    outputs: int = 0
    spent: dict[str, int] = dataclasses.field(default_factory=dict)


class StageTimes:
    """Measures some of the calls that compute outputs.

    Whoever makes the calls counts `left` down, and measures the one at which it is 0.

    Attributes:
        left: Calls up to the next one that is to be measured, that one included.
    """

    def __init__(self) -> None:
        self.left = FIRST
        self.by_clock = Measured(), Measured()
        self._turn = 0
        self._least_ns = 0

    @contextlib.contextmanager
    def measuring(self) -> Iterator[Measured]:
        """Measure what is done inside; its outputs are for the caller to count."""
        measured = self.by_clock[self._turn]
        spent: dict[str, int] = {}
        slept, cpu_ns = sleeps(), time.thread_time_ns()
        began = time.perf_counter_ns()
        hot_run.measure(spent, CLOCKS[self._turn])
        try:
            yield measured
        finally:
            hot_run.measure(None)
            took = max(time.perf_counter_ns() - began, 1)
            part = 1.0
            if self._turn == 0 and sleeps() == slept:
                # It never waited: the rest of the time other programs were at work.
                part = min((time.thread_time_ns() - cpu_ns) / took, 1.0)
            for name, ns in spent.items():
                measured.spent[name] = measured.spent.get(name, 0) + int(ns * part)
            self._turn = 1 - self._turn
            if self._turn:
                self._least_ns, self.left = took, 1
            else:
                # Measuring takes time itself, by the second clock most of all.
                least = min(self._least_ns, took)
                self.left = min(max(REST_NS // least, 1), MOST_REST)

    def measured(self, stage: str, compute: Callable[..., T], *arguments: Any) -> T:
        """What a call gives that makes an output; measured, as a stage of its own."""
        with self.measuring() as measured:
            began = hot_run.begin()
            made = compute(*arguments)
            measured.outputs += hot_run.end(stage, began)
            return made

    def text(self) -> str:
        """What was measured, for `told`."""
        wall, cpu = self.by_clock
        names = sorted(wall.spent, key=wall.spent.__getitem__, reverse=True)[:TOLD]
        rows = [
            (name[:NAME_CHARS], wall.spent[name], cpu.spent.get(name, 0))
            for name in names
        ]
        return json.dumps((wall.outputs, cpu.outputs, rows), separators=(",", ":"))


def told(texts: Iterable[bytes]) -> tuple[Measured, Measured]:
    """What workers measured together, of their texts; empty ones tell nothing."""
    wall, cpu = Measured(), Measured()
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


def each(by_clock: tuple[Measured, Measured]) -> dict[str, StageTime]:
    """What an output takes of each stage."""
    wall, cpu = by_clock
    found: dict[str, StageTime] = {}
    for name, spent in wall.spent.items():
        seconds = max(spent, 0) / max(wall.outputs, 1) / 1e9
        share = 1.0
        if cpu.outputs and seconds:
            computed = cpu.spent.get(name, 0) / cpu.outputs / 1e9
            share = min(max(computed / seconds, 0.0), 1.0)
        found[name] = StageTime(seconds, share)
    return found
