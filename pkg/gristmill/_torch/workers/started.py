"""Starts workers with `multiprocessing`: by fork, spawn or forkserver.

They run the same loop as the launcher's workers.  A thread of the user's process waits
for their ends and for their requests for larger slots, and reports both to the core.
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

# The time that workers have to finish after they were asked to stop, in seconds.
_LEAVE_S = 1.0
# `close` adds this to the eventfd to stop the thread. Workers cannot reach this value.
_END = 1 << 32


class StartedProcesses:
    """The processes of one pool of workers; `restarts` replaces those that die."""

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
        # Unlike the engine's own descriptor, a forked process may use this copy.
        self._arena = _Descriptor(
            fcntl.fcntl(scheduler.arena_fd, fcntl.F_DUPFD_CLOEXEC, 3)
        )
        # Workers signal it to request larger slots, and `close` to stop the thread.
        self._calls = _Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._closing = False
        # By pidfd: worker, generation, process.
        self._running: dict[int, tuple[int, int, BaseProcess]] = {}
        self._thread = threading.Thread(
            target=self._watch, name="gristmill-workers", daemon=True
        )

    def start(self) -> None:
        """Start all workers.

        Raises:
            Exception: Starting a worker failed, for example pickling the dataset.
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
        # Runs before multiprocessing ends its children, and before modules are cleared.
        atexit.register(self.close)

    def process_of(self, worker: int) -> BaseProcess | None:
        """Return the process of a worker, or None if it has ended."""
        running = list(self._running.values())
        return next(
            (process for number, _, process in running if number == worker), None
        )

    def close(self) -> None:
        """Stop the workers. Does nothing in a fork of the process that started them."""
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
        # Run until `close` has written to the eventfd, which `_end_all` closes.
        while not self._answer():
            pass
        self._end_all()

    def _answer(self) -> bool:
        """Wait for requests and ends of workers; return True to stop."""
        for fd in connection.wait([self._calls.fd, *self._running]):
            if fd != self._calls.fd:
                self._replace(cast(int, fd))
            elif os.eventfd_read(self._calls.fd) >= _END:
                return True
            else:
                self._scheduler.on_slot_requested()
        return False

    def _replace(self, pidfd: int) -> None:
        """Reap a process, and restart it if restarts are enabled."""
        worker, generation = self._reap(pidfd)
        if self._restarts and not self._closing:
            try:
                self._start(worker, generation + 1)
            except Exception as error:
                self._scheduler.on_failed(f"A worker could not be started: {error!r}")

    def _end_all(self) -> None:
        """Wait for workers to end, and kill those that do not end in time."""
        deadline = time.monotonic() + _LEAVE_S
        for pidfd, (_, _, process) in list(self._running.items()):
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
            self._reap(pidfd)
        os.close(self._arena.fd)
        os.close(self._calls.fd)
        # The user may keep this object for its processes: release the dataset.
        del self._program

    def _reap(self, pidfd: int) -> tuple[int, int]:
        """Report the end of a process; return its worker and generation."""
        worker, generation, process = self._running.pop(pidfd)
        process.join()
        os.close(pidfd)
        code = process.exitcode or 0
        # In the format of waitpid(2).
        status = -code if code < 0 else code << 8
        self._scheduler.on_exited(worker, generation, status)
        return worker, generation


class _Descriptor:
    """A file descriptor that can be sent to a process with any start method."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.fd),)


def _received(sent: Any) -> _Descriptor:
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
    """Run a worker until it is asked to stop, or its parent has ended."""
    nesting.become_worker()
    os.environ.pop(nesting.IMPORTING, None)
    parent: Any = multiprocessing.parent_process()
    if by_main_thread and os.getppid() == parent.pid:
        # This works even if this process is busy.  The kernel sends the signal when the
        # thread that forked ends, so that must be the main thread.
        _core.die_with_parent(parent.pid)
    leave_signals_to_parent()
    # multiprocessing ends its children by SIGTERM.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    restore_signals_in_forks()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    engine_worker.serve(
        cast(Runnable, program), arena.fd, calls.fd, -1, worker, generation
    )


class _Target:
    """`_serve`, whose module a spawned process imports without garbage collection.

    The collector would traverse all objects of torch's modules, which takes three times
    as long as importing ours.
    """

    __call__ = staticmethod(_serve)

    def __reduce__(self) -> Any:
        # The order matters: gc.freeze must run after torch was imported.
        return _last, ((torch.Tensor, _Frozen(), _Worker(), _serve),)


class _Frozen:
    """Unpickles to a call of `gc.freeze`."""

    def __reduce__(self) -> Any:
        return gc.freeze, ()


class _Worker:
    """Unpickles to a call of `_begin_import`, before the dataset is unpickled."""

    def __reduce__(self) -> Any:
        return _begin_import, ()


def _begin_import() -> None:
    """Disable workers while importing the program's modules, until `_serve` runs."""
    nesting.become_worker()
    os.environ[nesting.IMPORTING] = "1"


_last = operator.itemgetter(-1)
_SERVE = _Target()


def _end_with(parent: Any) -> None:
    ends = [parent.sentinel]
    try:
        # Processes that were forked after this one may keep the sentinel's pipe open.
        ends.append(os.pidfd_open(parent.pid))
    except ProcessLookupError:
        os._exit(1)
    except OSError:
        pass  # No descriptor is left.
    connection.wait(ends)
    os._exit(1)
