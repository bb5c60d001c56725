"""Workers that `multiprocessing` starts, by fork, spawn or forkserver.

They run the same loop as the launcher's workers.  A thread of the user's process waits
for their exits and their requests for larger slots, and reports both to the core.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import multiprocessing
import operator
import os
import signal
import threading
import time
from multiprocessing import connection, reduction
from multiprocessing.process import BaseProcess
from typing import Any, cast

import torch

from gristmill import _core
from gristmill._engine import worker as engine_worker
from gristmill._engine.stream import Runnable
from gristmill._torch.workers.fetch import FetchProgram
from gristmill._workers import nesting
from gristmill._workers.processes import (
    leave_signals_to_parent,
    restore_signals_in_forks,
)

# The time after `close` for workers to exit by themselves, before they are killed.
_LEAVE_S = 1.0
# `close` writes this to the eventfd.  It is more than the workers' requests can add up
# to.
_END = 1 << 32


class StartedProcesses:
    """The processes of one pool of workers; with `restarts`, dead ones are replaced."""

    def __init__(
        self,
        scheduler: _core.Scheduler,
        program: FetchProgram,
        context: Any,
        restarts: bool,
    ) -> None:
        self._scheduler = scheduler
        self._program = program
        self._context = context
        self._restarts = restarts
        self._owner = os.getpid()
        # A duplicate, because forked processes must not use the engine's descriptor.
        self._arena = _Descriptor(
            fcntl.fcntl(scheduler.arena_fd, fcntl.F_DUPFD_CLOEXEC, 3)
        )
        # Workers write to it to request larger slots, and `close` to end the thread.
        self._calls = _Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._closing = False
        # The worker, generation and process, by pidfd.
        self._running: dict[int, tuple[int, int, BaseProcess]] = {}
        self._thread = threading.Thread(
            target=self._watch, name="gristmill-workers", daemon=True
        )

    def start(self) -> None:
        """Start all workers.

        Raises:
            Exception: A worker could not be started, for example because the dataset
                cannot be pickled.
        """
        self._scheduler.start_alone()
        try:
            for worker in range(self._program.workers):
                self._start(worker, 1)
        except BaseException:
            self._scheduler.close()
            self._end_all()
            raise
        self._thread.start()
        # Runs before multiprocessing ends its children, and while modules exist.
        atexit.register(self.close)

    def process_of(self, worker: int) -> BaseProcess | None:
        """Return the process of a worker, or None if it has ended."""
        running = list(self._running.values())
        return next(
            (process for number, _, process in running if number == worker), None
        )

    def close(self) -> None:
        """End the workers.  Does nothing in a fork of the process that started them."""
        started = self._thread.ident is not None
        if not started or self._closing or os.getpid() != self._owner:
            return
        self._closing = True
        atexit.unregister(self.close)
        self._scheduler.close()
        os.eventfd_write(self._calls.fd, _END)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self, worker: int, generation: int) -> None:
        by_main_thread = threading.current_thread() is threading.main_thread()
        process = self._context.Process(
            target=_SERVE,
            args=(self._program, self._arena, self._calls, worker, generation),
            kwargs={"by_main_thread": by_main_thread},
            daemon=True,
        )
        process.start()
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:  # No descriptor is left.
            process.kill()
            process.join()
            raise
        self._running[pidfd] = worker, generation, process
        self._scheduler.on_started(worker, generation, process.pid)

    def _watch(self) -> None:
        # Runs until `close` has written to the eventfd, which `_end_all` closes.
        while not self._handle_events():
            pass
        self._end_all()

    def _handle_events(self) -> bool:
        """Wait for requests and exits of workers; return whether `close` was called."""
        for fd in connection.wait([self._calls.fd, *self._running]):
            if fd != self._calls.fd:
                self._replace(cast(int, fd))
            elif os.eventfd_read(self._calls.fd) >= _END:
                return True
            else:
                self._scheduler.on_worker_notified()
        return False

    def _replace(self, pidfd: int) -> None:
        """Reap a process, and start a replacement if workers are restarted."""
        worker, generation = self._reap(pidfd)
        if self._restarts and not self._closing:
            try:
                self._start(worker, generation + 1)
            except Exception as error:
                self._scheduler.on_failed(f"A worker could not be started: {error!r}")

    def _end_all(self) -> None:
        """Wait for workers to exit, and kill those that have not after `_LEAVE_S`."""
        deadline = time.monotonic() + _LEAVE_S
        for pidfd, (_, _, process) in list(self._running.items()):
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
            self._reap(pidfd)
        os.close(self._arena.fd)
        os.close(self._calls.fd)
        # The user may keep this object's processes, which must not hold the dataset.
        del self._program

    def _reap(self, pidfd: int) -> tuple[int, int]:
        """Report the exit of a process; return its worker and generation."""
        worker, generation, process = self._running.pop(pidfd)
        process.join()
        os.close(pidfd)
        code = process.exitcode or 0
        # In the format of waitpid(2).
        status = -code if code < 0 else code << 8
        self._scheduler.on_exited(worker, generation, status)
        return worker, generation


class _Descriptor:
    """A descriptor that every start method of processes passes on."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _receive, (reduction.DupFd(self.fd),)


def _receive(sent: Any) -> _Descriptor:
    return _Descriptor(sent.detach())


def _serve(
    program: FetchProgram,
    arena: _Descriptor,
    calls: _Descriptor,
    worker: int,
    generation: int,
    *,
    by_main_thread: bool,
) -> None:
    """Run a worker until the core stops it, or its parent has ended."""
    nesting.become_worker()
    os.environ.pop(nesting.IMPORTING, None)
    parent: Any = multiprocessing.parent_process()
    if by_main_thread and os.getppid() == parent.pid:
        # The kernel kills this process even if it is blocked.  Only for the main
        # thread: the kernel sends the signal when the thread that forked ends.
        _core.die_with_parent(parent.pid)
    leave_signals_to_parent()
    # Multiprocessing ends its children by SIGTERM.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    restore_signals_in_forks()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    engine_worker.serve(
        cast(Runnable, program), arena.fd, calls.fd, -1, worker, generation
    )


class _Target:
    """Calls `_serve`; unpickling it freezes torch's objects before importing ours.

    Otherwise the garbage collector of a spawned process would traverse all objects of
    torch's modules, which takes three times as long as importing Gristmill's modules.
    """

    __call__ = staticmethod(_serve)

    def __reduce__(self) -> Any:
        # Unpickled in this order: first torch is imported, then its objects are frozen.
        return _last, ((torch.Tensor, _Frozen(), _Worker(), _serve),)


class _Frozen:
    """Calls `gc.freeze` when it is unpickled."""

    def __reduce__(self) -> Any:
        return gc.freeze, ()


class _Worker:
    """Calls `_begin_import` when it is unpickled, which is before the dataset."""

    def __reduce__(self) -> Any:
        return _begin_import, ()


def _begin_import() -> None:
    """Forbid the program's modules, and processes that they start, to start workers.

    `_serve` allows it again for processes that are started on purpose.
    """
    nesting.become_worker()
    os.environ[nesting.IMPORTING] = "1"


_last = operator.itemgetter(-1)
_SERVE = _Target()


def _end_with(parent: Any) -> None:
    ends = [parent.sentinel]
    try:
        # Processes forked later may keep the other end of the sentinel open.
        ends.append(os.pidfd_open(parent.pid))
    except ProcessLookupError:
        os._exit(1)
    except OSError:
        pass  # No descriptor is left.
    connection.wait(ends)
    os._exit(1)
