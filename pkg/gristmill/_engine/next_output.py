"""Computes the next output in a thread, while the caller uses the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gristmill._engine.background import Background

if TYPE_CHECKING:
    from concurrent.futures import Future


class NextOutput:
    """One call at a time, in a thread of its own.

    The thread owns the objects that the call uses until `take` has returned.
    """

    def __init__(self) -> None:
        self._thread = Background(1, "gristmill-next-output")
        self._future: Future[Any] | None = None

    @property
    def begun(self) -> bool:
        """Whether there is a call to take."""
        return self._future is not None

    @property
    def lost(self) -> bool:
        """Whether this is a fork, without the thread and with what that left."""
        return self._thread.lost

    def begin(self, compute: Callable[[], Any]) -> None:
        """Begin a call."""
        self._future = self._thread.submit(compute)

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

    def close(self, leave: Callable[[], None]) -> None:
        """End the thread; does not wait for the call.

        `leave` is called when the call no longer uses what it works with: at once, or
        later, by the thread.
        """
        future, self._future = self._future, None
        if future is None or self.lost:
            leave()
        else:
            future.add_done_callback(lambda _: leave())
        self._thread.close()
