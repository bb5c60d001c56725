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
from typing import Any, NamedTuple, cast

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
_EXIT_TIMEOUT_S = 1.0
# `close` writes this to the eventfd.  It is more than the workers' requests can add up
# to.
_CLOSE_REQUEST = 1 << 32


class _RunningWorker(NamedTuple):
    """A process, the number of its worker, and how many processes that has had."""

    worker: int
    generation: int
    process: BaseProcess


class StartedProcesses:
    """The processes of one pool of workers; with `restarts`, dead ones are replaced.

    `start` starts the processes in the calling thread, and then the thread
    "gristmill-workers".  From then on only that thread changes `_running`, starts
    replacements and reaps processes.
    """

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
        self._owner_pid = os.getpid()
        # A duplicate, because forked processes must not use the engine's descriptor.
        self._arena = _Descriptor(
            fcntl.fcntl(scheduler.arena_fd, fcntl.F_DUPFD_CLOEXEC, 3)
        )
        # An eventfd that wakes the thread.  Workers write to request larger slots,
        # and `close` to end the thread.
        self._wakeup = _Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        # Set by `close`; the thread reads it before it starts a replacement.
        self._closing = False
        # By pidfd, which becomes readable when the process ends.
        self._running: dict[int, _RunningWorker] = {}
        self._thread = threading.Thread(
            target=self._watch, name="gristmill-workers", daemon=True
        )

    def start(self) -> None:
        """Start all workers.

        Raises:
            Exception: A worker could not be started, for example because the dataset
                cannot be pickled.
        """
        self._scheduler.start_alone()  # The core starts no processes itself.
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
        # A copy, because the thread changes `_running`.
        running = list(self._running.values())
        return next((one.process for one in running if one.worker == worker), None)

    def close(self) -> None:
        """End the workers.  Does nothing in a fork of the process that started them."""
        started = self._thread.ident is not None
        if not started or self._closing or os.getpid() != self._owner_pid:
            return
        self._closing = True
        atexit.unregister(self.close)
        self._scheduler.close()
        os.eventfd_write(self._wakeup.fd, _CLOSE_REQUEST)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self, worker: int, generation: int) -> None:
        """Start a process, and report it to the core."""
        by_main_thread = threading.current_thread() is threading.main_thread()
        process = self._context.Process(
            target=_SERVE,
            args=(self._program, self._arena, self._wakeup, worker, generation),
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
        self._running[pidfd] = _RunningWorker(worker, generation, process)
        self._scheduler.on_started(worker, generation, process.pid)

    def _watch(self) -> None:
        # Runs until `close` has written to the eventfd, which `_end_all` closes.
        while not self._handle_events():
            pass
        self._end_all()

    def _handle_events(self) -> bool:
        """Wait for requests and exits of workers; return whether `close` was called."""
        for fd in connection.wait([self._wakeup.fd, *self._running]):
            if fd != self._wakeup.fd:
                self._replace(cast(int, fd))
            elif os.eventfd_read(self._wakeup.fd) >= _CLOSE_REQUEST:
                return True
            else:
                self._scheduler.on_worker_notified()
        return False

    def _replace(self, pidfd: int) -> None:
        """Reap a process, and start a replacement if workers are restarted."""
        exited = self._reap(pidfd)
        if self._restarts and not self._closing:
            try:
                self._start(exited.worker, exited.generation + 1)
            except Exception as error:
                self._scheduler.on_failed(f"A worker could not be started: {error!r}")

    def _end_all(self) -> None:
        """Wait `_EXIT_TIMEOUT_S` for workers to exit, then kill the others."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        for pidfd, running in list(self._running.items()):
            running.process.join(max(0.0, deadline - time.monotonic()))
            if running.process.is_alive():
                running.process.kill()
            self._reap(pidfd)
        os.close(self._arena.fd)
        os.close(self._wakeup.fd)
        # The user may keep this object's processes, which must not hold the dataset.
        del self._program

    def _reap(self, pidfd: int) -> _RunningWorker:
        """Wait for the exit of a process, report it to the core, and return it."""
        exited = self._running.pop(pidfd)
        exited.process.join()
        os.close(pidfd)
        code = exited.process.exitcode or 0
        # In the format of waitpid(2).
        wait_status = -code if code < 0 else code << 8
        self._scheduler.on_exited(exited.worker, exited.generation, wait_status)
        return exited


class _Descriptor:
    """A descriptor that every start method of processes passes on."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _receive_descriptor, (reduction.DupFd(self.fd),)


def _receive_descriptor(duplicate: Any) -> _Descriptor:
    return _Descriptor(duplicate.detach())


def _serve(
    program: FetchProgram,
    arena: _Descriptor,
    wakeup: _Descriptor,
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
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    # -1: no zygote waits for the start of this worker.
    engine_worker.serve(
        cast(Runnable, program), arena.fd, wakeup.fd, -1, worker, generation
    )


class _ServeTarget:
    """Calls `_serve`; unpickling it freezes torch's objects before importing ours.

    Otherwise the garbage collector of a spawned process would traverse all objects of
    torch's modules, which takes three times as long as importing Gristmill's modules.
    """

    __call__ = staticmethod(_serve)

    def __reduce__(self) -> Any:
        # Unpickled in this order: first torch is imported, then its objects are frozen.
        steps = (torch.Tensor, _FreezeObjects(), _BeginImport(), _serve)
        return _last_item, (steps,)


class _FreezeObjects:
    """Calls `gc.freeze` when it is unpickled."""

    def __reduce__(self) -> Any:
        return gc.freeze, ()


class _BeginImport:
    """Calls `_begin_import` when it is unpickled, which is before the dataset."""

    def __reduce__(self) -> Any:
        return _begin_import, ()


def _begin_import() -> None:
    """Forbid the program's modules, and processes that they start, to start workers.

    `_serve` allows it again for processes that are started on purpose.
    """
    nesting.become_worker()
    os.environ[nesting.IMPORTING] = "1"


_last_item = operator.itemgetter(-1)
_SERVE = _ServeTarget()


def _exit_with_parent(parent: Any) -> None:
    """Wait until the parent process ends, and exit."""
    parent_fds = [parent.sentinel]
    try:
        # Processes forked later may keep the other end of the sentinel open.
        parent_fds.append(os.pidfd_open(parent.pid))
    except ProcessLookupError:
        os._exit(1)
    except OSError:
        pass  # No descriptor is left.
    connection.wait(parent_fds)
    os._exit(1)
