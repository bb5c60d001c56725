"""Times some of the calls of an iterator, at no cost to the others.

While calls are timed, their iterator has another class, made for the purpose, whose
``__next__`` takes the time.  Otherwise it has its own class, because many calls take
less time than a check whether to time them.  A stretch of calls is timed when the
iterator is new, and again every two seconds, when `Sampling` measures a block.  If
nothing is read by index, all calls are timed.  If an element fails, Gristmill's own
frames are cut from its traceback, too.
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
from gristmill._engine.tracebacks import cut
from gristmill._observe.passes import Opening

AT_ONCE = 128
KEPT_DURATIONS = 8192
# Two blocks of short elements, so that how they are made is timed as well.
STRETCH_CALLS = 1024
# More calls than a stretch has.
MANY = 1 << 29
# From the beginning of a stretch to that of the next one.
EVERY_NS = 2_000_000_000


def _no_samplings(iterator: Any) -> tuple[()]:
    return ()


class Watch:
    """Has calls of one iterator timed, and knows how long they took.

    Args:
        iterator: It.
        record: Is told how long calls took, in ns, while metrics are recorded.
        dataset: What a chain's iterator iterates over.
        rests: Whether calls are timed in stretches, as those of chains that are read by
            index.  The iterator's ``__next__`` then counts `left` down, and calls
            `start` when that is 0 or less.
        samplings_of: Returns what measures blocks for an iterator, each with who reads
            them; by default nothing does.

    Attributes:
        left: Calls up to the next stretch, if calls are timed in stretches; `MANY`
            at the beginning of one.
        times: Beginnings and ends of calls that are not yet counted, in ns.
        enough: So many of these are worth counting.
        complete: Whether all calls were timed.
        outputs: Calls that gave an element, of those that were timed.
        next_ns: How long they took; first_ns: the first one.
        gap_ns: How long what is between them took, where that is known: the
            consumer's time.
        sized: Elements of which the size was taken; bytes: their size.
        durations_ns: How long the last calls took.
        opening: Told of the first calls, if somebody counts iterations.
    """

    def __init__(
        self,
        iterator: Any,
        record: Callable[[list[int]], None],
        dataset: Any = None,
        rests: bool = False,
        samplings_of: Callable[[Any], Iterable[Any]] = _no_samplings,
    ) -> None:
        self._record = record
        self._samplings_of = samplings_of
        self.dataset = dataset
        self.opening: Opening | None = None
        self._rests = rests
        self.left = MANY
        self.times: list[int] = []
        self.enough = 2 if monitoring.is_on() else 2 * AT_ONCE
        self.complete = True
        self.outputs = self.next_ns = self.gap_ns = self.first_ns = 0
        self.sized = self.bytes = 0
        self.durations_ns: collections.deque[int] = collections.deque(
            maxlen=KEPT_DURATIONS
        )
        # When the last call ended; 0: the next one does not follow on one that counts.
        self._ended_ns = 0
        # The iterator's own class, while it has another.
        self._kind: type | None = None
        self._until = self._due_ns = 0
        self.start(iterator)

    def start(self, iterator: Any) -> None:
        """Time the next calls."""
        self.left = MANY
        self._until = self.outputs + STRETCH_CALLS
        self._due_ns = time.perf_counter_ns() + EVERY_NS
        kind = self._kind or type(iterator)
        try:
            iterator.__class__ = timed_class(kind, annotates=tracing())
        except TypeError:  # Its class allows no other: it goes untimed.
            self.complete = False
            return
        if self._kind is None:
            self._kind = kind
            self._ended_ns = 0
            # Another class leaves attributes where CPython 3.11 and 3.12 find them
            # 12 ns later each; in a new dict they are found as before.
            iterator.__dict__ = dict(iterator.__dict__)
            for sampling, feed in self._samplings_of(iterator):
                sampling.begin(feed)

    def is_due(self) -> bool:
        """Whether it is long enough since a stretch began."""
        return time.perf_counter_ns() >= self._due_ns

    def take(self, iterator: Any, element: Any) -> None:
        """Count the calls that were timed; stop where that was enough."""
        self.count(iterator)
        found = list(self._samplings_of(iterator))
        for sampling, feed in found:
            sampling.look(feed)
        if element is not None:
            self.sized += 1
            self.bytes += size_of(element)
            self._ended_ns = time.perf_counter_ns()
        if self.outputs < self._until or not (found or self._rests):
            return
        if monitoring.is_on() or tracing():
            return
        if not found:
            self._rest(iterator)
            return
        # Keras looks for our code on the stack, where compiled code does not appear.
        visible = "keras" in sys.modules
        iterator.__class__ = visible_class(self._kind) if visible else self._kind
        self._kind = None
        self.complete = False

    def _rest(self, iterator: Any) -> None:
        """Time no call until the next stretch is due."""
        began_ns = self._due_ns - EVERY_NS
        took = time.perf_counter_ns() - began_ns
        self.left = STRETCH_CALLS * (EVERY_NS - took) // took
        if self.left < STRETCH_CALLS:
            self.start(iterator)
            return
        iterator.__class__ = self._kind
        self._kind = None
        self.complete = False

    def leave_out(self) -> None:
        """Count nothing of what is between the last call and the next one."""
        self._ended_ns = 0

    def count(self, iterator: Any) -> None:
        """Count the calls that were timed."""
        if self._kind is not None:
            for sampling, feed in self._samplings_of(iterator):
                sampling.count(feed)
        times, self.times = self.times, []
        whole = len(times) // 2 * 2
        if not whole:
            return
        began, ended = np.array(times[:whole], np.int64).reshape(-1, 2).T
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


def tracing() -> bool:
    """Whether jax's profiler records what happens."""
    profiler = getattr(sys.modules.get("jax"), "profiler", None)
    return profiler is not None and bool(profiler.TraceAnnotation.is_enabled())


@functools.cache
def timed_class(kind: type, annotates: bool) -> type:
    """Return a class of iterators that differs from `kind` in that calls are timed.

    If it `annotates`, calls are named in the trace of jax's profiler, too.
    """
    advance = kind.__next__  # type: ignore[attr-defined]
    if annotates:
        advance = _annotated(kind, advance)
    noted = getattr(kind, "_CUT_IS_NOTED", True)
    clock = time.perf_counter_ns

    def __next__(self: Any) -> Any:
        watch = self._watch
        if watch.opening is not None:
            watch.opening.call(self)
        began = clock()
        try:
            element = advance(self)
        except BaseException as error:
            watch.count(self)
            cut(error, noted)
            raise
        ended = clock()
        watch.times.append(began)
        watch.times.append(ended)
        if len(watch.times) >= watch.enough:
            watch.take(self, element)
        return element

    return _like(kind, __next__)


@functools.cache
def visible_class(kind: type) -> type:
    """Return a class of iterators like `kind` whose calls are on Python's stack."""
    if hasattr(kind.__next__, "__code__"):  # type: ignore[attr-defined]
        return kind
    advance = kind.__next__  # type: ignore[attr-defined]

    def __next__(self: Any) -> Any:
        return advance(self)

    return _like(kind, __next__)


def _like(kind: type, advance: Callable[[Any], Any]) -> type:
    """A class of the same name with another ``__next__``."""
    names = {
        "__next__": advance,
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
