"""The thread that takes elements out of an iterator ahead of need."""

from __future__ import annotations

import atexit
import collections
import os
import queue
import sys
import threading
import time
import weakref
from typing import Any, TypeAlias

from gristmill._dataset.model.states import copied

# An element, the state behind it, and what was raised instead of it.
Taken: TypeAlias = tuple[Any, Any, BaseException | None]

# Handing an element from one thread to another takes about this long.
FAST_ELEMENT_S = 20e-6
PROBED = 9
# How long the end of the interpreter waits for an element in the making.
EXIT_WAIT_S = 1.0
# A thread that has left its function ends at once, unless who waits for it holds a lock
# of `threading`: an iterator may be collected within `threading.enumerate()`.
LEAVE_WAIT_S = 0.1


class SlowProbe:
    """Finds out whether elements take longer than handing them to another thread.

    Attributes:
        slow: Whether the usual one of the last that were timed did; True at first.
    """

    def __init__(self) -> None:
        self.slow = True
        self._took_s: collections.deque[float] = collections.deque(maxlen=PROBED)

    def add(self, seconds: float) -> None:
        """Take into account how long an element took."""
        self._took_s.append(seconds)
        if len(self._took_s) == PROBED:
            self.slow = sorted(self._took_s)[PROBED // 2] > FAST_ELEMENT_S


class PrefetchThread:
    """Takes elements out of an iterator, until it ends, one fails, or they are fast.

    The iterator belongs to the thread until `take` has returned its end, or `stop` has
    returned.  At least one element may wait.  A probe is told how long elements take;
    without one the thread goes on however fast they are.
    """

    def __init__(
        self, source: Any, size: int, name: str, probe: SlowProbe | None
    ) -> None:
        self.pid = os.getpid()
        self._source = source
        self._probe = probe
        self._stopping = False
        self._left = threading.Event()
        self._room = threading.Semaphore(size)
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f"gristmill-thread-prefetch-{name}"
        )
        _alive.add(self)
        self._thread.start()

    def take(self) -> Taken | None:
        """The next of them; None where elements are too fast for a thread.

        After None, or an exception, the thread has ended.
        """
        taken: Taken | None = self._ready.get()
        self._room.release()
        if taken is None or taken[2] is not None:
            self._thread.join()
        return taken

    def stop(self, timeout_s: float | None = None) -> None:
        """End the thread, and wait for it; elements that wait are lost."""
        if self._stopping or self.pid != os.getpid():
            return  # A fork has not its parent's threads.
        self._stopping = True
        self._room.release()
        ending = self._thread is threading.current_thread() or sys.is_finalizing()
        if not ending and self._left.wait(timeout_s):
            self._thread.join(LEAVE_WAIT_S)

    def _run(self) -> None:
        try:
            self._take_ahead()
        finally:
            self._left.set()

    def _take_ahead(self) -> None:
        source, probe = self._source, self._probe
        while probe is None or probe.slow:
            self._room.acquire()
            if self._stopping:
                return
            began = time.perf_counter()
            try:
                self._ready.put((next(source), copied(source.get_state()), None))
            except BaseException as error:
                self._ready.put((None, _state_behind(source, error), error))
                return
            if probe is not None:
                probe.add(time.perf_counter() - began)
        self._ready.put(None)


def _state_behind(source: Any, error: BaseException) -> Any:
    """The state behind an element that failed; None at the end, or if it has none."""
    if isinstance(error, StopIteration):
        return None
    try:
        return copied(source.get_state())
    except Exception:
        return None


# Those that may have a thread; it must not run while the interpreter is torn down.
_alive: weakref.WeakSet[PrefetchThread] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for thread in list(_alive):
        thread.stop(EXIT_WAIT_S)
