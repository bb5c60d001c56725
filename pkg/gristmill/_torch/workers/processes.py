"""Workers that `multiprocessing` starts: by fork, spawn or forkserver, as asked for.

They run the same loop as the launcher's workers.  A thread of the user's process waits
for their deaths and for their calls for larger slots, and tells the core.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import multiprocessing
import operator
import os
import select
import signal
import threading
import time
from multiprocessing import connection, reduction
from multiprocessing.context import get_spawning_popen
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from gristmill import _core
from gristmill._engine import worker as engine_worker
from gristmill._torch.workers.fetching import FetchProgram
from gristmill._workers.worker_process import (
    leave_signals_to_parent,
    restore_signals_in_forks,
)

# How long workers that were told to stop may go on with what they do.
_LEAVE_S = 1.0


class StartedProcesses:
    """The processes of one crew.

    Args:
        scheduler: Whose workers they are.
        program: What they run.
        context: Starts them, by its `Process`.
        restarts: Whether another process takes the place of a dead one.
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
        self._owner = os.getpid()
        self._arena = _Descriptor(_copy_of(scheduler.arena_fd))
        self._knock = _Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._stop = _Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        # By pidfd: worker, generation, process.
        self._living: dict[int, tuple[int, int, BaseProcess]] = {}
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
            self._end_processes()
            raise
        self._thread.start()
        # Before multiprocessing ends its children, and while there are modules.
        atexit.register(self.close)

    def kill(self, worker: int, signal_number: int) -> None:
        """End a worker's process."""
        for pidfd, (number, _, _) in list(self._living.items()):
            if number == worker:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(pidfd, signal_number)

    def name_of(self, worker: int) -> str | None:
        """The name of a worker's process; None if it has ended."""
        living = list(self._living.values())
        return next((p.name for number, _, p in living if number == worker), None)

    def close(self) -> None:
        """End the workers; a fork of the process that has them leaves them alone."""
        if self._thread.ident is None or not self._stop or os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        self._scheduler.close()
        os.eventfd_write(self._stop.fd, 1)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self, worker: int, generation: int) -> None:
        by_main_thread = threading.current_thread() is threading.main_thread()
        process = self._context.Process(
            target=_SERVE,
            args=(self._program, self._arena, self._knock, worker, generation),
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
        self._living[pidfd] = worker, generation, process
        self._scheduler.on_started(worker, generation, process.pid)

    def _watch(self) -> None:
        poll = select.poll()
        for fd in (self._stop.fd, self._knock.fd, *self._living):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._stop.fd:
                    return self._end_processes()
                if fd == self._knock.fd:
                    os.eventfd_read(fd)
                    self._scheduler.on_slot_requested()
                    continue
                poll.unregister(fd)
                for successor in self._bury(fd):
                    poll.register(successor, select.POLLIN)

    def _bury(self, pidfd: int) -> list[int]:
        """Report a death; the pidfds of those that have come in its place."""
        worker, generation, process = self._living.pop(pidfd)
        os.close(pidfd)
        process.join()
        before = set(self._living)
        self._scheduler.on_exited(worker, generation, _wait_status(process.exitcode))
        if self._restarts:
            try:
                self._start(worker, generation + 1)
            except Exception as error:
                self._scheduler.on_failed(f"A worker could not be started: {error!r}")
        return [fd for fd in self._living if fd not in before]

    def _end_processes(self) -> None:
        """Let those that are idle leave, kill the others, and report all."""
        living, self._living = self._living, {}
        deadline = time.monotonic() + _LEAVE_S
        for pidfd, (worker, generation, process) in living.items():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            os.close(pidfd)
            status = _wait_status(process.exitcode)
            self._scheduler.on_exited(worker, generation, status)
        for descriptor in (self._arena, self._knock, self._stop):
            descriptor.close()


class _Descriptor:
    """A descriptor that goes along when a process is started, however that is."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __bool__(self) -> bool:
        return self.fd >= 0

    def __reduce__(self) -> Any:
        if get_spawning_popen() is None:
            raise TypeError("a descriptor goes only to a process that is being started")
        return _received, (reduction.DupFd(self.fd),)

    def close(self) -> None:
        """Close it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _received(sent: Any) -> _Descriptor:
    return _Descriptor(sent.detach())


def _serve(
    program: FetchProgram,
    arena: _Descriptor,
    knock: _Descriptor,
    worker: int,
    generation: int,
    *,
    by_main_thread: bool,
) -> None:
    """Run a worker until it is told to stop, or its parent has ended."""
    parent: Any = multiprocessing.parent_process()
    if by_main_thread and os.getppid() == parent.pid:
        # Whatever this process does then.  The signal follows the thread that forked.
        _core.die_with_parent(parent.pid)
    leave_signals_to_parent()
    # By this multiprocessing ends its children.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    restore_signals_in_forks()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    engine_worker.serve(program, arena.fd, knock.fd, -1, worker, generation)


class _Target:
    """`_serve`, whose module a process that is spawned imports without pauses.

    The collector would go through all that torch's modules hold, which takes as long
    as importing ours does three times.
    """

    __call__ = staticmethod(_serve)

    def __reduce__(self) -> Any:
        # In this order: torch is there when its objects are set aside.
        return _last, ((torch.Tensor, _Frozen(), _serve),)


class _Frozen:
    """Becomes a call of `gc.freeze` where it is loaded."""

    def __reduce__(self) -> Any:
        return gc.freeze, ()


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


def _copy_of(fd: int) -> int:
    """A copy that, unlike the engine's own, a forked process may use."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _wait_status(exitcode: int | None) -> int:
    """An exit code in the form of waitpid(2)."""
    if exitcode is None:
        return 0
    return -exitcode if exitcode < 0 else exitcode << 8
