"""The workers of a pool, for programs that expect `multiprocessing` processes."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple, Protocol

from gristmill import _core
from gristmill._torch.workers.started import StartedProcesses

# The longest time to wait for the pid of a process that is starting, and the time
# between two checks.
_PID_TIMEOUT_S = 60.0
_PID_POLL_S = 0.002


class _ProcessStatus(NamedTuple):
    pid: int  # 0 until the process has started.
    is_alive: bool
    # In the format of waitpid(2); None before the end, and after `WorkerPool.close`.
    wait_status: int | None


class Pool(Protocol):
    """A `WorkerPool`."""

    scheduler: _core.Scheduler
    started: StartedProcesses | None
    closed: bool


class WorkerProcess:
    """Has the interface of a worker's `multiprocessing.Process`.

    It holds no reference to the dataset.
    """

    daemon = True

    def __init__(self, pool: Pool, worker: int) -> None:
        self._scheduler = pool.scheduler
        self._started = pool.started
        # A pool is closed before it is deleted.
        self._pool = weakref.ref(pool)
        self._worker = worker

    @property
    def name(self) -> str:
        # The name that the worker's own code sees.
        process = self._process()
        return process.name if process else f"GristmillWorker-{self._worker}"

    @property
    def pid(self) -> int | None:
        deadline = time.monotonic() + _PID_TIMEOUT_S
        while not (pid := self._status().pid) and time.monotonic() < deadline:
            time.sleep(_PID_POLL_S)
        return pid or None

    ident = pid

    @property
    def exitcode(self) -> int | None:
        if self.is_alive():
            return None
        wait_status = self._status().wait_status  # None after `close`.
        return 0 if wait_status is None else os.waitstatus_to_exitcode(wait_status)

    def is_alive(self) -> bool:
        # A process that is about to start counts as alive.
        pool, status = self._pool(), self._status()
        is_open = pool is not None and not pool.closed
        return is_open and (status.is_alive or not status.pid)

    def join(self, timeout: float | None = None) -> None:
        pid = self._status().pid
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                connection.wait([pidfd], timeout)
            finally:
                os.close(pidfd)

    def terminate(self) -> None:
        if process := self._process():
            process.terminate()
        else:
            self.kill()

    def kill(self) -> None:
        if process := self._process():
            process.kill()
        elif self._started is None:
            self._scheduler.kill(self._worker)

    def _process(self) -> BaseProcess | None:
        return self._started.process_of(self._worker) if self._started else None

    def _status(self) -> _ProcessStatus:
        return _ProcessStatus(*self._scheduler.processes()[self._worker])
