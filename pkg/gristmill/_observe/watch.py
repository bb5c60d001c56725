"""Times some of the calls of an iterator, at no cost to the others.

While a `Watch` is at work its iterator has another class, made for the purpose, whose
``__next__`` takes the time; else it has its own.  Calls that take long are all timed.
Of short ones a stretch is timed, and then none for two seconds; the datasets that it
reads by index say when that is over.  Where an element fails, frames of Gristmill's are
cut from its traceback, too.
"""

from __future__ import annotations

import collections
import functools
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from gristmill import monitoring
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator, feeds_of
from gristmill._observe.meter import size_of
from gristmill._observe.sampling import Sampling
from gristmill._observe.tracebacks import cut

# Calls this long are all timed: that costs about a microsecond.
LONG_NS = 200_000
STRETCH_CALLS = 1024
AT_ONCE = 128
REST_NS = 2_000_000_000
KEPT_DURATIONS = 8192


class Watch:
    """What is known of the calls of one iterator.

    Args:
        iterator: The iterator.
        always: Whether to time all calls, and to leave it to others to measure what
            is read by index.

    Attributes:
        calls: Calls that were timed and gave an element.
        next_ns: How long they took.
        gaps: Times between two of them that were timed.
        gap_ns: How long those took: the consumer's time.
        sized: Elements of which the size was taken.
        bytes: Their size.
        complete: Whether all calls were timed.
        feeds: What is measured of each dataset that it reads by index.
        indices: Indices that each feed gave out for the calls that were timed.
        fails_soon: Whether an element further on will fail, which ends the stretch.
    """

    def __init__(self, iterator: Any, always: bool = False) -> None:
        self._always = always
        self.calls = self.next_ns = self.gaps = self.gap_ns = 0
        self.sized = self.bytes = 0
        self.complete = True
        self._durations: collections.deque[int] = collections.deque(
            maxlen=KEPT_DURATIONS
        )
        self._iterator = weakref.ref(iterator)
        # A loader has a metric of its own.
        self._of_dataset = isinstance(iterator, DatasetIterator)
        readers = [] if always else list(feeds_of(iterator))
        # Weak, since one of them may be the iterator itself.
        self._readers = [weakref.ref(reader) for reader in readers]
        self.feeds = [self._sampling(reader) for reader in readers]
        self.indices = [0] * len(self.feeds)
        self._ready = [0] * len(self._readers)
        self._looks = 0
        self.fails_soon = False
        # Beginnings and ends of calls that are not yet taken into account.
        self.times: list[int] = []
        # So many make it worth while.
        self.at_once = 2 if monitoring.is_on() else 2 * AT_ONCE
        self._kind: type | None = None
        self._rests_until_ns = 0
        self._last_ns = 0
        self._stretch_calls = self._stretch_ns = 0
        self._given: list[int] = []
        self._begin(iterator)

    def durations_ns(self) -> list[int]:
        """How long the last calls took."""
        return list(self._durations)

    def wake(self, iterator: Any, now: bool) -> None:
        """Begin to time again, if it is time or has to be now."""
        rested = now or time.perf_counter_ns() >= self._rests_until_ns
        if self._kind is None and rested:
            self._begin(iterator)
        self.fails_soon |= now

    def look(self) -> None:
        """Take all that was timed into account, and time some calls again."""
        self.count()
        iterator = self._iterator()
        if self._kind is None and iterator is not None:
            self._begin(iterator)

    def readiness(self) -> list[tuple[str, int, int, int]]:
        """Of each buffer: name, elements ready in all, times looked, capacity."""
        return [
            (str(reader), self._ready[number], self._looks, reader.capacity)
            for number, reader in self._open_readers()
            if reader.capacity
        ]

    def take(self, iterator: Any, element: Any) -> None:
        """Take calls into account: there are enough of them."""
        self.count()
        self._look_at_buffers()
        if element is not None:
            self.sized += 1
            self.bytes += size_of(element)
            self._last_ns = time.perf_counter_ns()
        short = self._stretch_calls < STRETCH_CALLS
        if self._kind is None or short or self.fails_soon:
            return
        took = self._stretch_ns
        if self.feeds:
            # Other programs' time does not count; where nobody wakes, waiting does.
            took = time.thread_time_ns() - self._stretch_cpu_ns
            self._stretch_cpu_ns += took
        mean = took / self._stretch_calls
        self._stretch_calls = self._stretch_ns = 0
        if self._always or mean > LONG_NS or monitoring.is_on():
            return
        if tracing():
            iterator.__class__ = timed_class(self._kind, annotates=True)
            return
        iterator.__class__ = self._kind
        self._kind = None
        self.complete = False
        self._rests_until_ns = time.perf_counter_ns() + REST_NS

    def count(self) -> None:
        """Take the calls that were timed into account."""
        times, self.times = self.times, []
        if len(times) < 2:
            return
        whole = len(times) // 2 * 2
        began, ended = np.array(times[:whole], np.int64).reshape(-1, 2).T
        took = ended - began
        gaps = began[1:] - ended[:-1]
        self.calls += len(took)
        self.next_ns += int(took.sum())
        self.gaps += len(gaps)
        self.gap_ns += int(gaps.sum())
        if self._last_ns:
            self.gaps += 1
            self.gap_ns += int(began[0]) - self._last_ns
        self._last_ns = int(ended[-1])
        self._stretch_calls += len(took)
        self._stretch_ns += int(ended[-1] - began[0])
        self._durations.extend(took.tolist())
        if monitoring.is_on() and self._of_dataset:
            monitoring.record_next(took.tolist())
        for number, reader in self._open_readers():
            given = reader.given
            self.indices[number] += max(given - self._given[number], 0)
            self._given[number] = given

    def _look_at_buffers(self) -> None:
        self._looks += 1
        for number, reader in self._open_readers():
            ready = reader.ready()
            self._ready[number] += ready
            if monitoring.is_on():
                monitoring.record_ready(ready)

    def _begin(self, iterator: Any) -> None:
        kind: Any = type(iterator)
        try:
            iterator.__class__ = timed_class(kind, annotates=tracing())
        except TypeError:  # Its class allows no other: it goes untimed.
            self.complete = False
            return
        self._kind = kind
        self._last_ns = self._stretch_calls = self._stretch_ns = 0
        self._stretch_cpu_ns = time.thread_time_ns()
        self._given = [0] * len(self._readers)
        for number, reader in self._open_readers():
            self._given[number] = reader.given

    def _open_readers(self) -> Iterator[tuple[int, PrefetchDatasetIterator[Any]]]:
        for number, reference in enumerate(self._readers):
            reader = reference()
            if reader is not None:
                yield number, reader

    def _sampling(self, reader: PrefetchDatasetIterator[Any]) -> Sampling:
        # Weak, since it becomes the iterator's, and a circle would outlive it.
        watched = self._iterator

        def wake(now: bool) -> None:
            found = watched()
            if found is not None and found._watch is not None:
                found._watch.wake(found, now)

        reader.sampling = Sampling(reader.dataset, wake)
        return reader.sampling


def tracing() -> bool:
    """Whether jax's profiler records what happens."""
    profiler = getattr(sys.modules.get("jax"), "profiler", None)
    return profiler is not None and bool(profiler.TraceAnnotation.is_enabled())


@functools.cache
def timed_class(kind: type, annotates: bool) -> type:
    """A class of iterators that differs from `kind` in that calls are timed.

    Args:
        kind: The class.
        annotates: Whether calls are named in the trace of jax's profiler.
    """
    advance = kind.__next__  # type: ignore[attr-defined]
    if annotates:
        advance = _annotated(kind, advance)
    clock = time.perf_counter_ns

    def __next__(self: Any) -> Any:
        watch = self._watch
        began = clock()
        try:
            element = advance(self)
        except BaseException as error:
            watch.count()
            watch.fails_soon = False
            if isinstance(self, DatasetIterator):
                cut(error)
            raise
        ended = clock()
        times = watch.times
        times.append(began)
        times.append(ended)
        if len(times) >= watch.at_once:
            watch.take(self, element)
        return element

    names = {
        "__next__": __next__,
        "__slots__": (),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    return type(kind)(kind.__name__, (kind,), names)


def _annotated(kind: type, advance: Any) -> Any:
    import jax

    annotation = jax.profiler.TraceAnnotation
    name = f"{kind.__name__}.__next__"

    def __next__(self: Any) -> Any:
        with annotation(name, _ipl_stage_name=str(self), _ipl_stage_cat="prefetch"):
            return advance(self)

    return __next__
