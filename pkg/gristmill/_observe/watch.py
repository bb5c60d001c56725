"""Times some calls of an iterator; a call that is not timed costs next to nothing.

Each iterator that users get has a `Watch`.  `Watch.call` makes a call of the iterator
and measures its duration.  A loader's iterator counts its calls down in
`Watch.calls_until_timed`, and makes a call through `Watch.call` when the count reaches
0.  `chain_watch.py` explains how chains do that.

A stretch of calls is timed when the iterator is new.  In a chain that is read by index,
the next stretch begins when `Sampling` measures a block, after two seconds or more.  In
a loader, it begins after as many calls as are likely to take two seconds.  In other
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
from gristmill._observe.passes import PassStart

# The number of timed calls after which their durations are added up.
FLUSH_CALLS = 128
# The number of timed calls whose durations are kept.
MAX_DURATIONS = 8192
# Two blocks of short elements, so that the computation of blocks is timed as well.
STRETCH_CALLS = 1024
# Disables timing: no iterator makes this many calls.
NEVER_CALLS = 1 << 60
# The time from the beginning of a stretch to the beginning of the next one.
STRETCH_INTERVAL_NS = 2_000_000_000


class Watch:
    """Times calls of one iterator and adds up the times.

    The thread that iterates calls the methods.  Threads that read blocks of a chain
    call only `start` and `is_due`, without a lock.  If that happens at the end of a
    stretch, calls may stay untimed until the next `start`.

    Args:
        iterator: The iterator.
        record: Called with the durations of calls, in ns, while metrics are recorded.
        times_periodically: Whether to begin a stretch every `STRETCH_INTERVAL_NS`, as
            for a loader, in which no `Sampling` does that.

    Attributes:
        calls_until_timed: A loader decrements this before each call, and times the
            call if the result is 0 or less.  It is NEVER_CALLS during a timed call, so
            that nested calls are not timed.
        times: The beginning and the end, in turn, of each call that is not added up
            yet, in ns.
        complete: Whether all calls were timed.
        outputs: The number of timed calls that returned an element.
        total_ns: The total duration of these calls.
        first_ns: The duration of the first of these calls.
        gap_ns: The time that the consumer spent between timed calls, in ns.
        sized_elements: The number of elements whose size was measured.
        bytes: The total size of these elements.
        durations_ns: The durations of the last `MAX_DURATIONS` timed calls.
        pass_start: Counts this iteration of the dataset during its first two calls;
            then None.
    """

    def __init__(
        self,
        iterator: Any,
        record: Callable[[list[int]], None],
        times_periodically: bool = False,
    ) -> None:
        self._record = record
        self.pass_start: PassStart | None = None
        self._times_periodically = times_periodically
        self.calls_until_timed = 0
        self.times: list[int] = []
        # `times` is added up when it has this many entries: after each call if metrics
        # are recorded from the beginning.
        self._flush_threshold = 2 if monitoring.is_on() else 2 * FLUSH_CALLS
        self.complete = True
        self.outputs = self.total_ns = self.gap_ns = self.first_ns = 0
        self.sized_elements = self.bytes = 0
        self.durations_ns: collections.deque[int] = collections.deque(
            maxlen=MAX_DURATIONS
        )
        # The end of the last call, or 0 if the time until the next one does not count.
        self._last_end_ns = 0
        # The number of outputs at which the stretch ends; 0 between stretches.
        self._stretch_end = 0
        # The time from which the next stretch may begin.
        self._due_ns = 0
        # True if jax's profiler runs, and the calls must be named in its trace.
        self._traces = False
        self.start(iterator)

    def start(self, iterator: Any) -> None:
        """Time the next calls: begin a stretch, or extend the current one."""
        if not self._stretch_end:
            self._last_end_ns = 0
            for sampling, feed in self._samplings_of(iterator):
                sampling.begin(feed)
        self._stretch_end = self.outputs + STRETCH_CALLS
        self._due_ns = time.perf_counter_ns() + STRETCH_INTERVAL_NS
        self._traces = is_tracing()
        self.calls_until_timed = 0
        try:
            self._set_timing(iterator, on=True)
        except TypeError:  # Python does not let its class be changed.
            self.complete = False

    def is_due(self) -> bool:
        """Return whether the next stretch may begin."""
        return time.perf_counter_ns() >= self._due_ns

    def call(self, iterator: Any, advance: Callable[[Any], Any]) -> Any:
        """Return `advance(iterator)`, and measure its duration during a stretch."""
        if not self._stretch_end:
            # A chain gets here only for Keras, see `ChainWatch._set_timing`.
            if not self._times_periodically:
                return advance(iterator)
            self.start(iterator)
        if self.pass_start is not None:
            self.pass_start.call(iterator)
        if self._traces:
            advance = functools.partial(_call_annotated, advance)
        times = self.times
        self.calls_until_timed = NEVER_CALLS
        start_ns = time.perf_counter_ns()
        try:
            element = advance(iterator)
            times += start_ns, time.perf_counter_ns()
        except BaseException as error:
            self.count(iterator)
            cut_own_frames(error, getattr(iterator, "_CUT_IS_NOTED", True))
            raise
        finally:
            self.calls_until_timed = 0
        if len(times) >= self._flush_threshold:
            self._record_calls(iterator, element)
        return element

    def count(self, iterator: Any) -> None:
        """Add up the calls that were timed."""
        if self._stretch_end:
            for sampling, feed in self._samplings_of(iterator):
                sampling.count(feed)
        count = len(self.times) // 2 * 2
        if not count:
            return
        starts, ends = np.array(self.times[:count], np.int64).reshape(-1, 2).T
        del self.times[:count]
        if not self._last_end_ns:
            self._last_end_ns = int(starts[0])
        durations_ns = (ends - starts).tolist()
        if not self.outputs:
            self.first_ns = durations_ns[0]
        self.outputs += len(durations_ns)
        self.total_ns += sum(durations_ns)
        self.gap_ns += int(ends[-1]) - self._last_end_ns - sum(durations_ns)
        self._last_end_ns = int(ends[-1])
        self.durations_ns.extend(durations_ns)
        if monitoring.is_on():
            self._record(durations_ns)

    def exclude_gap(self) -> None:
        """Do not count the time between the last call and the next one."""
        self._last_end_ns = 0

    def _record_calls(self, iterator: Any, element: Any) -> None:
        """Add up the calls that were timed; end the stretch if it is long enough.

        `element` is that of the last call; its size is measured.
        """
        self.count(iterator)
        samplings = list(self._samplings_of(iterator))
        for sampling, feed in samplings:
            sampling.sample_ready(feed)
        if element is not None:
            self.sized_elements += 1
            self.bytes += size_of(element)
            self._last_end_ns = time.perf_counter_ns()
        if self.outputs < self._stretch_end or monitoring.is_on() or is_tracing():
            return
        # Otherwise nothing would begin the next stretch.
        if self._times_periodically or samplings:
            self._pause(iterator)

    def _pause(self, iterator: Any) -> None:
        """Stop timing calls until the next stretch."""
        self.calls_until_timed = NEVER_CALLS
        if self._times_periodically:
            stretch_start_ns = self._due_ns - STRETCH_INTERVAL_NS
            elapsed_ns = time.perf_counter_ns() - stretch_start_ns
            # As many as fit into the rest of the interval at the speed until now.
            self.calls_until_timed = (
                STRETCH_CALLS * (STRETCH_INTERVAL_NS - elapsed_ns) // elapsed_ns
            )
            if self.calls_until_timed < STRETCH_CALLS:
                self.start(iterator)
                return
        # In this order: if another thread calls `start` in between, some calls are not
        # timed.  In the other order, untimed calls would count as timed.
        self._set_timing(iterator, on=False)
        self._stretch_end = 0
        self.complete = False

    def _set_timing(self, iterator: Any, on: bool) -> None:
        """Route the iterator's calls through `call`, or stop doing so.

        Overridden by `ChainWatch`.  Loaders use `calls_until_timed` instead.
        """

    def _samplings_of(self, iterator: Any) -> Iterable[tuple[Any, Any]]:
        """Return pairs of a `Sampling` and the iterator that reads its blocks.

        Overridden by `ChainWatch`.
        """
        return ()


def is_tracing() -> bool:
    """Return whether jax's profiler runs."""
    profiler = getattr(sys.modules.get("jax"), "profiler", None)
    return profiler is not None and bool(profiler.TraceAnnotation.is_enabled())


def _call_annotated(advance: Callable[[Any], Any], iterator: Any) -> Any:
    """Return `advance(iterator)`, and name the call in the trace of jax's profiler."""
    import jax

    name = f"{type(iterator).__name__}.__next__"
    with jax.profiler.TraceAnnotation(
        name, _ipl_stage_name=str(iterator), _ipl_stage_cat="prefetch"
    ):
        return advance(iterator)
