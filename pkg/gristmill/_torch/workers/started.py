"""Workers that `multiprocessing` starts: by fork, spawn or forkserver, as asked for.

They run the same loop as the launcher's workers.  A thread of the user's process waits
for their deaths and for their calls for larger slots, and tells the core.
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

# How long workers that were told to stop may go on with what they do.
_LEAVE_S = 1.0
# Told by `close` to the thread: more than all workers together can call for.
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
        # A copy that, unlike the engine's own, a forked process may use.
        self._arena = _Descriptor(
            fcntl.fcntl(scheduler.arena_fd, fcntl.F_DUPFD_CLOEXEC, 3)
        )
        # Workers call by it for larger slots, and `close` for an end.
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
            Exception: What starting the first one raised, as pickling the dataset.
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
        # Before multiprocessing ends its children, and while there are modules.
        atexit.register(self.close)

    def process_of(self, worker: int) -> BaseProcess | None:
        """The process of a worker; None if it has ended."""
        running = list(self._running.values())
        return next(
            (process for number, _, process in running if number == worker), None
        )

    def close(self) -> None:
        """End the workers; a fork of the process that has them leaves them alone."""
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
        # Until `close` has written: it needs the descriptor, which `_end_all` closes.
        while not self._answer():
            pass
        self._end_all()

    def _answer(self) -> bool:
        """Wait for calls and ends of workers; returns whether all is to end."""
        for fd in connection.wait([self._calls.fd, *self._running]):
            if fd != self._calls.fd:
                self._replace(cast(int, fd))
            elif os.eventfd_read(self._calls.fd) >= _END:
                return True
            else:
                self._scheduler.on_slot_requested()
        return False

    def _replace(self, pidfd: int) -> None:
        """Reap a process, and start another in its place where that is wanted."""
        worker, generation = self._reap(pidfd)
        if self._restarts and not self._closing:
            try:
                self._start(worker, generation + 1)
            except Exception as error:
                self._scheduler.on_failed(f"A worker could not be started: {error!r}")

    def _end_all(self) -> None:
        """Let those that are idle leave, and kill the others."""
        deadline = time.monotonic() + _LEAVE_S
        for pidfd, (_, _, process) in list(self._running.items()):
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
            self._reap(pidfd)
        os.close(self._arena.fd)
        os.close(self._calls.fd)
        # Programs keep the processes, and not the dataset.
        del self._program

    def _reap(self, pidfd: int) -> tuple[int, int]:
        """Report how a process has ended; its worker and generation."""
        worker, generation, process = self._running.pop(pidfd)
        process.join()
        os.close(pidfd)
        code = process.exitcode or 0
        # As waitpid(2) has it.
        status = -code if code < 0 else code << 8
        self._scheduler.on_exited(worker, generation, status)
        return worker, generation


class _Descriptor:
    """A descriptor that goes along when a process is started, however that is."""

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
    """Run a worker until it is told to stop, or its parent has ended."""
    nesting.become_worker()
    os.environ.pop(nesting.IMPORTING, None)
    parent: Any = multiprocessing.parent_process()
    if by_main_thread and os.getppid() == parent.pid:
        # Whatever this process does then.  The signal follows the thread that forked.
        _core.die_with_parent(parent.pid)
    leave_signals_to_parent()
    # By this multiprocessing ends its children.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    restore_signals_in_forks()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    engine_worker.serve(
        cast(Runnable, program), arena.fd, calls.fd, -1, worker, generation
    )


class _Target:
    """`_serve`, whose module a process that is spawned imports without pauses.

    The collector would go through all that torch's modules hold, which takes as long
    as importing ours does three times.
    """

    __call__ = staticmethod(_serve)

    def __reduce__(self) -> Any:
        # In this order: torch is there when its objects are set aside.
        return _last, ((torch.Tensor, _Frozen(), _Worker(), _serve),)


class _Frozen:
    """Becomes a call of `gc.freeze` where it is loaded."""

    def __reduce__(self) -> Any:
        return gc.freeze, ()


class _Worker:
    """Becomes a call of `_begin_import` where it is loaded, before the dataset is."""

    def __reduce__(self) -> Any:
        return _begin_import, ()


def _begin_import() -> None:
    """Let what the program's modules start have no workers; `_serve` ends that."""
    nesting.become_worker()
    os.environ[nesting.IMPORTING] = "1"


_last = operator.itemgetter(-1)
_SERVE = _Target()


def _end_with(parent: Any) -> None:
    ends = [parent.sentinel]
    try:
        # Processes that were forked after this one may hold the sentinel's other end.
        ends.append(os.pidfd_open(parent.pid))
    except ProcessLookupError:
        os._exit(1)
    except OSError:
        pass  # No descriptor is left.
    connection.wait(ends)
    os._exit(1)
