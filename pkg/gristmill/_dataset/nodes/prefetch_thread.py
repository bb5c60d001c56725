"""A thread that prefetches elements of an iterator."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from gristmill._dataset.model.states import copy_state
from gristmill._engine.background import Background
from gristmill._engine.slow_probe import SlowProbe
from gristmill._hot import cancellation

# An idle thread ends at once, unless the thread that waits for it holds a lock of
# `threading`: an iterator may be garbage-collected within `threading.enumerate()`.
JOIN_TIMEOUT_S = 0.1
CLOSED_TEXT = "Attempting to use a closed iterator."


class PrefetchedElement(NamedTuple):
    """An element, the state after it, and the exception raised in its place."""

    element: Any
    state: Any
    error: BaseException | None


class PrefetchThread:
    """Prefetches elements until the iterator ends or fails, or elements are fast.

    The iterator belongs to the thread until `take` has returned its end, `stop` has
    returned True, or `wait` has returned.

    Args:
        source: The iterator.
        size: The most elements that may wait, at least 1.
        name: A name for the thread.
        probe: Measures the time of elements.  Without a probe, the thread does not stop
            if they are fast.
    """

    def __init__(
        self, source: Any, size: int, name: str, probe: SlowProbe | None
    ) -> None:
        self._source = source
        self._probe = probe
        # Protects the next three fields.  Reentrant: the garbage collector may call
        # `stop` anywhere.
        self._lock = threading.RLock()
        self._stopping = False
        self._computing = False
        # The iterators that the thread closes when it ends; set by `stop`.
        self._to_close: Sequence[Any] = ()
        # Both are thread-safe. None in the queue: elements are too fast, or `stop` was
        # called.
        self._free_slots = threading.Semaphore(size)
        self._queue: queue.SimpleQueue[PrefetchedElement | None] = queue.SimpleQueue()
        self._background = Background(1, f"gristmill-thread-prefetch-{name}")
        self._future = self._background.submit(self._run)

    @property
    def is_in_fork(self) -> bool:
        """Whether this is a forked process, which does not have the thread."""
        return self._background.is_in_fork

    def take(self) -> PrefetchedElement | None:
        """Return the next element; None if elements are too fast for a thread.

        After None, or an exception, the thread has ended.

        Raises:
            ValueError: Another thread has called `stop`.
        """
        prefetched = self._queue.get()
        self._free_slots.release()
        if self._stopping:
            # Raises Cancelled if the calling thread is itself no longer needed.
            cancellation.check()
            raise ValueError(CLOSED_TEXT)
        if prefetched is None or prefetched.error is not None:
            self._background.close()
            self._background.join(JOIN_TIMEOUT_S)
        return prefetched

    def stop(self, to_close: Sequence[Any] = ()) -> bool:
        """Stop the thread after its current element, and drop waiting elements.

        Does not block, and any thread may call it.  Returns False if the thread is
        still computing and uses the iterator; it then closes the iterators `to_close`
        when it ends.
        """
        if self.is_in_fork:
            return True
        with self._lock:
            self._stopping = True
            computing = self._computing
            if computing:
                self._to_close = to_close
        self._free_slots.release()  # Wakes the prefetching thread.
        self._background.close()
        self._queue.put(None)  # Wakes a thread in `take`.
        if not computing:
            self._background.join(JOIN_TIMEOUT_S)
        return not computing

    def wait(self) -> None:
        """Wait for the current element, after `stop`."""
        if not self.is_in_fork:
            self._future.exception()

    def _run(self) -> None:
        """Prefetch elements. This runs in the prefetching thread."""
        probe = self._probe
        while probe is None or probe.waits:
            self._free_slots.acquire()
            if not self._set_computing(computing=True):
                return
            start_s = time.perf_counter()
            prefetched = _read_element(self._source)
            duration_s = time.perf_counter() - start_s
            if not self._set_computing(computing=False):
                # `stop` has cancelled this thread, but `close` must run to its end.
                cancellation.revive(threading.get_ident())
                for iterator in self._to_close:
                    iterator.close()
                return
            self._queue.put(prefetched)
            if prefetched.error is not None:
                return
            if probe is not None:
                probe.add(duration_s)
        self._queue.put(None)

    def _set_computing(self, *, computing: bool) -> bool:
        """Mark the start or end of an element; return False after `stop`."""
        with self._lock:
            self._computing = computing and not self._stopping
            return not self._stopping


def _read_element(source: Any) -> PrefetchedElement:
    try:
        element = next(source)
        return PrefetchedElement(element, copy_state(source.get_state()), None)
    except BaseException as error:
        return PrefetchedElement(None, _state_after(source, error), error)


def _state_after(source: Any, error: BaseException) -> Any:
    """Return the state after an element that failed, or None at the end or on error."""
    if isinstance(error, StopIteration):
        return None
    try:
        return copy_state(source.get_state())
    except Exception:
        return None
