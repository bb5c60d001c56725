"""The thread that takes elements out of an iterator ahead of need."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from gristmill._dataset.model.states import copied
from gristmill._engine.background import Background
from gristmill._engine.slow_probe import SlowProbe
from gristmill._hot import cancellation

# An element, the state behind it, and what was raised instead of it.
Taken: TypeAlias = tuple[Any, Any, BaseException | None]

# A thread that computes nothing ends at once, unless who waits for it holds a lock of
# `threading`: an iterator may be collected within `threading.enumerate()`.
LEAVE_WAIT_S = 0.1
CLOSED = "Attempting to use a closed iterator."


class PrefetchThread:
    """Takes elements out of an iterator, until it ends, one fails, or they are fast.

    The iterator belongs to the thread until `take` has returned its end, `stop` has
    returned True, or `wait` has returned.  At least one element may wait.  The probe
    measures how long elements take; without one the thread goes on however fast they
    are.
    """

    def __init__(
        self, source: Any, size: int, name: str, probe: SlowProbe | None
    ) -> None:
        self._source = source
        self._probe = probe
        # Reentrant: the garbage collector may stop a thread anywhere.
        self._lock = threading.RLock()
        self._stopping = False
        self._computing = False
        self._to_close: Sequence[Any] = ()
        self._room = threading.Semaphore(size)
        self._ready: queue.SimpleQueue[Taken | None] = queue.SimpleQueue()
        self._background = Background(1, f"gristmill-thread-prefetch-{name}")
        self._done = self._background.submit(self._run)

    @property
    def lost(self) -> bool:
        """True in a fork, which does not have the thread."""
        return self._background.lost

    def take(self) -> Taken | None:
        """The next of them; None if elements are too fast for a thread.

        After None, or an exception, the thread has ended.

        Raises:
            ValueError: Another thread has called `stop`.
        """
        taken = self._ready.get()
        self._room.release()
        if self._stopping:
            cancellation.check()
            raise ValueError(CLOSED)
        if taken is None or taken[2] is not None:
            self._background.close()
            self._background.join(LEAVE_WAIT_S)
        return taken

    def stop(self, to_close: Sequence[Any] = ()) -> bool:
        """End the thread after its current element; elements that wait are lost.

        Returns at once.  False means that the thread still computes, and uses the
        iterator: it closes the iterators `to_close` when it leaves.
        """
        if self.lost:
            return True
        with self._lock:
            self._stopping = True
            computing = self._computing
            if computing:
                self._to_close = to_close
        self._room.release()
        self._background.close()
        self._ready.put(None)
        if not computing:
            self._background.join(LEAVE_WAIT_S)
        return not computing

    def wait(self) -> None:
        """Wait for the current element, after `stop`."""
        if not self.lost:
            self._done.exception()

    def _run(self) -> None:
        probe = self._probe
        while probe is None or probe.waits:
            self._room.acquire()
            if not self._goes_on(computing=True):
                return
            began = time.perf_counter()
            taken = _next_of(self._source)
            took_s = time.perf_counter() - began
            if not self._goes_on(computing=False):
                cancellation.revive(threading.get_ident())
                for iterator in self._to_close:
                    iterator.close()
                return
            self._ready.put(taken)
            if taken[2] is not None:
                return
            if probe is not None:
                probe.add(took_s)
        self._ready.put(None)

    def _goes_on(self, *, computing: bool) -> bool:
        """Begin or end an element; returns False after `stop`."""
        with self._lock:
            self._computing = computing and not self._stopping
            return not self._stopping


def _next_of(source: Any) -> Taken:
    try:
        return next(source), copied(source.get_state()), None
    except BaseException as error:
        return None, _state_behind(source, error), error


def _state_behind(source: Any, error: BaseException) -> Any:
    """The state behind an element that failed; None at the end, or if it has none."""
    if isinstance(error, StopIteration):
        return None
    try:
        return copied(source.get_state())
    except Exception:
        return None
