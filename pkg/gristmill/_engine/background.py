"""Threads that read and compute in advance.

They run the user's code, which may take a long time, or never return.  So they are
daemons: neither `Background.close` nor the end of the program waits for a call.
A thread whose call returns after that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from gristmill._hot import cancellation

if TYPE_CHECKING:
    from concurrent.futures import Future

_Task: TypeAlias = "tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None"

# The time that all calls together have to return when the interpreter ends.  A thread
# that computes while Python is torn down may crash the process.
EXIT_WAIT_S = 1.0


class Background:
    """Runs calls in up to `threads` threads, in the order in which they are submitted.

    Threads start when they are needed.  Any thread may call the methods.  A fork of the
    process cannot use the object, because it does not have the threads: `is_in_fork`.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._max_threads = threads
        self._name = name
        self._owner = os.getpid()
        # Changed by `submit`, under the lock of `_shared`.
        self._threads: list[threading.Thread] = []
        self._shared = _Shared()
        _instances.add(self)

    @property
    def is_in_fork(self) -> bool:
        """True if this process is a fork, which does not have the threads."""
        return self._owner != os.getpid()

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run a call in a thread, or cancel it if `close` was called."""
        from concurrent.futures import Future  # Slow to import.

        future: Future[Any] = Future()
        shared = self._shared
        with shared.lock:
            if shared.closed:
                future.cancel()
                return future
            shared.tasks.put((future, call, arguments))
            if shared.idle:
                shared.idle -= 1
            elif len(self._threads) < self._max_threads:
                self._start_thread()
        return future

    def _start_thread(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        shared = self._shared
        thread = threading.Thread(target=_work, args=(shared,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Cancel the calls that have not begun, and let the threads end.

        Does not wait.  Gristmill's loops that call the user's code end after the
        current call: they raise `cancellation.Cancelled` in their thread.
        """
        if self.is_in_fork:
            return
        shared = self._shared
        with shared.lock:
            shared.closed = True
            for thread in shared.busy:
                cancellation.cancel(thread)
            with contextlib.suppress(queue.Empty):
                while True:
                    task = shared.tasks.get_nowait()
                    if task is not None:
                        task[0].cancel()
            for _ in self._threads:
                shared.tasks.put(None)  # Ends one thread, see `_work`.

    def join(self, timeout_s: float) -> None:
        """Wait until the threads have ended, for at most `timeout_s` seconds."""
        if self.is_in_fork or sys.is_finalizing():
            return
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # During finalization, module globals may be None, and the threads have ended.
        if not is_finalizing():
            self.close()


class _Shared:
    """The state that a `Background` shares with its threads."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        # Guards the fields below.  Reentrant: the garbage collector may close a
        # `Background` anywhere.
        self.lock = threading.RLock()
        self.closed = False
        # The number of threads without a task.  It may be too high after all threads
        # have started, when it no longer matters.
        self.idle = 0
        # The threads that run a call, by `threading.get_ident`.
        self.busy: set[int] = set()


def _work(shared: _Shared) -> None:
    """Run tasks in a thread until `close` has put None into the queue."""
    thread = threading.get_ident()
    while (task := shared.tasks.get()) is not None:
        with shared.lock:
            shared.busy.add(thread)
        if shared.closed:
            task[0].cancel()  # `close` did not find it in the queue.
        else:
            _run(*task)
        del task  # Do not keep its objects alive until the next task.
        with shared.lock:
            shared.busy.discard(thread)
            cancellation.revive(thread)  # `close` may have cancelled it.
            shared.idle += 1


def _run(
    future: Future[Any], call: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call(*arguments)
    except BaseException as error:
        future.set_exception(error)
        del future, call, arguments  # The exception refers to this frame.
    else:
        future.set_result(result)


_instances: weakref.WeakSet[Background] = weakref.WeakSet()
os.register_at_fork(after_in_child=cancellation.revive_all)


@atexit.register
def _leave_at_exit() -> None:
    """Stop all threads; wait a moment for those in the middle of a call."""
    backgrounds = list(_instances)
    for background in backgrounds:
        background.close()
    deadline = time.monotonic() + EXIT_WAIT_S
    for background in backgrounds:
        background.join(max(0.0, deadline - time.monotonic()))
