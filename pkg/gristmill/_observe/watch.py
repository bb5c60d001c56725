"""Times some calls of an iterator; a call that is not timed costs next to nothing.

Each iterator that users get has a `Watch`.  `Watch.call` makes a call of the iterator
and takes the time.  A loader's iterator counts its calls down in `Watch.left`, and lets
`Watch.call` make those that are due; `chain_watch.py` says how chains do that.

A stretch of calls is timed when the iterator is new.  In a chain that is read by index,
the next stretch begins when `Sampling` measures a block, after two seconds or more.  In
a loader, it begins after as many calls as two seconds are expected to have.  In other
chains, all calls are timed.  If a timed call fails, Gristmill's frames are cut from the
traceback.
"""

from __future__ import annotations

import collections
import functools
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gristmill import monitoring
from gristmill._base.sizes import size_of
from gristmill._engine.tracebacks import cut_own_frames
from gristmill._observe.passes import Opening

AT_ONCE = 128
KEPT_DURATIONS = 8192
# Two blocks of short elements, so that the computation of blocks is timed as well.
STRETCH_CALLS = 1024
# More calls than any iterator makes.
NEVER = 1 << 60
# The time from the beginning of a stretch to the beginning of the next one.
EVERY_NS = 2_000_000_000


class Watch:
    """Times calls of one iterator and adds up the times.

    Args:
        iterator: The iterator.
        record: Called with the durations of calls, in ns, while metrics are recorded.
        rests: Whether to time stretches even if no block is measured.

    Attributes:
        left: The calls that a loader makes until one is timed; 0 or less during one.
        times: Beginnings and ends of calls that are not added up yet, in ns.
        complete: Whether all calls were timed.
        outputs: The number of timed calls that returned an element.
        next_ns: The duration of these calls; first_ns: of the first one.
        gap_ns: The time between calls that follow each other, which is the consumer's.
        sized: The number of elements whose size was taken; bytes: their size.
        durations_ns: The durations of the last calls.
        opening: Called before the first calls, if iterations are counted.
    """

    def __init__(
        self, iterator: Any, record: Callable[[list[int]], None], rests: bool = False
    ) -> None:
        self._record = record
        self.opening: Opening | None = None
        self._rests = rests
        self.left = 0
        self.times: list[int] = []
        # The number of times that are worth adding up.
        self._enough = 2 if monitoring.is_on() else 2 * AT_ONCE
        self.complete = True
        self.outputs = self.next_ns = self.gap_ns = self.first_ns = 0
        self.sized = self.bytes = 0
        self.durations_ns: collections.deque[int] = collections.deque(
            maxlen=KEPT_DURATIONS
        )
        # The end of the last call, or 0 if the time until the next one does not count.
        self._ended_ns = 0
        # The number of outputs at which the stretch ends; 0 between stretches.
        self._until = 0
        self._due_ns = 0
        self._traces = False
        self.start(iterator)

    def start(self, iterator: Any) -> None:
        """Time the next calls: begin a stretch, or begin the current one again."""
        if not self._until:
            self._ended_ns = 0
            for sampling, feed in self._samplings_of(iterator):
                sampling.begin(feed)
        self._until = self.outputs + STRETCH_CALLS
        self._due_ns = time.perf_counter_ns() + EVERY_NS
        self._traces = tracing()
        self.left = 0
        try:
            self._switch(iterator, on=True)
        except TypeError:  # The class of the iterator forbids it.
            self.complete = False

    def is_due(self) -> bool:
        """Return whether a stretch began long enough ago."""
        return time.perf_counter_ns() >= self._due_ns

    def call(self, iterator: Any, advance: Callable[[Any], Any]) -> Any:
        """Return `advance(iterator)`, an element, and take the time."""
        if not self._until:
            if not self._rests:  # The call is only to be on Python's stack.
                return advance(iterator)
            self.start(iterator)
        if self.opening is not None:
            self.opening.call(iterator)
        if self._traces:
            advance = functools.partial(_annotated, advance)
        times = self.times
        self.left = NEVER
        began = time.perf_counter_ns()
        try:
            element = advance(iterator)
            times += began, time.perf_counter_ns()
        except BaseException as error:
            self.count(iterator)
            cut_own_frames(error, getattr(iterator, "_CUT_IS_NOTED", True))
            raise
        finally:
            self.left = 0
        if len(times) >= self._enough:
            self._take(iterator, element)
        return element

    def count(self, iterator: Any) -> None:
        """Add up the calls that were timed."""
        if self._until:
            for sampling, feed in self._samplings_of(iterator):
                sampling.count(feed)
        whole = len(self.times) // 2 * 2
        if not whole:
            return
        began, ended = np.array(self.times[:whole], np.int64).reshape(-1, 2).T
        del self.times[:whole]
        if not self._ended_ns:
            self._ended_ns = int(began[0])
        took = (ended - began).tolist()
        if not self.outputs:
            self.first_ns = took[0]
        self.outputs += len(took)
        self.next_ns += sum(took)
        self.gap_ns += int(ended[-1]) - self._ended_ns - sum(took)
        self._ended_ns = int(ended[-1])
        self.durations_ns.extend(took)
        if monitoring.is_on():
            self._record(took)

    def leave_out(self) -> None:
        """Do not count the time between the last call and the next one."""
        self._ended_ns = 0

    def _take(self, iterator: Any, element: Any) -> None:
        """Add up the calls that were timed; end the stretch if it is long enough."""
        self.count(iterator)
        samplings = list(self._samplings_of(iterator))
        for sampling, feed in samplings:
            sampling.look(feed)
        if element is not None:
            self.sized += 1
            self.bytes += size_of(element)
            self._ended_ns = time.perf_counter_ns()
        if self.outputs < self._until or monitoring.is_on() or tracing():
            return
        if self._rests or samplings:
            self._rest(iterator)

    def _rest(self, iterator: Any) -> None:
        """Time no call until the next stretch is due."""
        self.left = NEVER
        if self._rests:
            took = time.perf_counter_ns() - (self._due_ns - EVERY_NS)
            self.left = STRETCH_CALLS * (EVERY_NS - took) // took
            if self.left < STRETCH_CALLS:
                self.start(iterator)
                return
        self._until = 0
        self.complete = False
        self._switch(iterator, on=False)

    def _switch(self, iterator: Any, on: bool) -> None:
        """Have `call` make the calls of the iterator, or no longer have it do so."""

    def _samplings_of(self, iterator: Any) -> Iterable[tuple[Any, Any]]:
        """Return pairs of a `Sampling` and the iterator that reads its blocks."""
        return ()


def tracing() -> bool:
    """Return whether jax's profiler runs."""
    profiler = getattr(sys.modules.get("jax"), "profiler", None)
    return profiler is not None and bool(profiler.TraceAnnotation.is_enabled())


def _annotated(advance: Callable[[Any], Any], iterator: Any) -> Any:
    """Return `advance(iterator)`, and name the call in the trace of jax's profiler."""
    import jax

    name = f"{type(iterator).__name__}.__next__"
    with jax.profiler.TraceAnnotation(
        name, _ipl_stage_name=str(iterator), _ipl_stage_cat="prefetch"
    ):
        return advance(iterator)
