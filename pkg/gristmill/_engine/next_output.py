"""Computes the next output in a thread, while the caller uses the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gristmill._engine.background import Background

if TYPE_CHECKING:
    from concurrent.futures import Future


class NextOutput:
    """Runs one call at a time, in its own thread.

    The thread owns the objects that the call uses until `take` has returned.
    """

    def __init__(self) -> None:
        self._thread = Background(1, "gristmill-next-output")
        self._future: Future[Any] | None = None

    @property
    def is_pending(self) -> bool:
        """True if there is a call to take."""
        return self._future is not None

    @property
    def is_in_fork(self) -> bool:
        """True if this process is a fork, which does not have the thread."""
        return self._thread.is_in_fork

    def begin(self, compute: Callable[[], Any]) -> None:
        """Begin a call.  REQUIRES: all earlier ones were taken."""
        self._future = self._thread.submit(compute)

    def take(self) -> Any:
        """Wait for the call; return its result or raise its exception.

        If this is interrupted, the next `take` returns the result.
        """
        future = self._future
        assert future is not None
        try:
            return future.result()
        finally:
            if future.done():
                self._future = None
            del future  # Its exception refers to this frame.

    def close(self, leave: Callable[[], None]) -> None:
        """End the thread; does not wait for the call.

        `leave` is called when the call no longer uses its objects: at once, or later in
        the thread.
        """
        future, self._future = self._future, None
        if future is None or self.is_in_fork:
            leave()
        else:
            future.add_done_callback(lambda _: leave())
        self._thread.close()
