"""Computes the next output in a thread, while the caller uses the last one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class NextOutput:
    """One call at a time, in a thread of its own.

    What the call works with is the thread's until `take` or `drop` has returned.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._future: Future[Any] | None = None
        self._owner = os.getpid()

    @property
    def begun(self) -> bool:
        """Whether there is a call to take."""
        return self._future is not None

    @property
    def lost(self) -> bool:
        """Whether this is a fork, without the thread and with what that left."""
        return self._owner != os.getpid()

    def begin(self, compute: Callable[[], Any]) -> None:
        """Begin a call."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # Slow to import.

            self._pool = ThreadPoolExecutor(1, "gristmill-next-output")
        self._future = self._pool.submit(compute)

    def take(self) -> Any:
        """Wait for the call, and return or raise what it did.

        Interrupted, it leaves the call to the next one that asks.
        """
        future = self._future
        assert future is not None
        try:
            return future.result()
        finally:
            if future.done():
                self._future = None
            del future  # What it raises refers to this frame.

    def drop(self) -> None:
        """Wait for the call, if there is one, and forget it."""
        future = self._future
        if future is not None and not self.lost:
            future.exception()
        self._future = None

    def close(self) -> None:
        """As `drop`, and end the thread."""
        self.drop()
        if self._pool is not None and not self.lost:
            self._pool.shutdown()
        self._pool = None
