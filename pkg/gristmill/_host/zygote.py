"""The zygote of a pool: loads the base program once and forks the workers."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import resource
import select
import socket
import sys
import time
import traceback
from typing import Any

from gristmill._engine import worker
from gristmill._engine.stream import Runnable
from gristmill._host import messages, pool_worker
from gristmill._workers import nesting
from gristmill._workers.processes import (
    fork,
    look_like_worker,
    restore_signals_in_forks,
)
from gristmill._workers.zygote import (
    adopt_parent_state,
    freeze_objects,
    warn_of_threads,
)

# The name of the processes; {} stands for the worker's number.
WORKER_NAME = "GristmillPool-{}"
# The time that workers have to end after the server has ended in order, in s.
LEAVE_S = 1.0


class PoolZygote:
    """Loads the program, and forks workers when the server requests them.

    Args:
        server: The socket to the server.
        state: The state of the rank that started the pool; see `parent.setup`.
        program_fd: The file with the base program.
        arena: The descriptor and the size of the pool's memory.
        loads_in_workers: Whether each worker loads the program for itself.
    """

    def __init__(
        self,
        server: socket.socket,
        state: dict[str, Any],
        program_fd: int,
        arena: tuple[int, int],
        *,
        loads_in_workers: bool,
    ) -> None:
        self._server = server
        self._state = state
        self._program_fd = program_fd
        self._arena = arena
        self._loads_in_workers = loads_in_workers
        # None until it is loaded: in this process, or in each worker.
        self._base: Any = None
        # The pid, the number and the serial of each worker by its pidfd.
        self._workers: dict[int, tuple[int, int, int]] = {}

    def run(self) -> None:
        """Load the program, then fork workers until the server closes its end."""
        nesting.become_worker()
        resource.setrlimit(resource.RLIMIT_NOFILE, self._state["file_limit"])
        try:
            adopt_parent_state(self._state)
            if not self._loads_in_workers:
                self._base = self._load()
        except BaseException:
            self._report("failed", traceback.format_exc())
            return
        if not self._loads_in_workers and warn_of_threads():
            self._report("threads")
            return
        freeze_objects()
        self._report("ready")
        self._serve()

    def _load(self) -> Runnable:
        with nesting.importing():
            if self._state["main"]:
                worker.run_main(self._state["main"])
            return worker.load(self._program_fd)

    def _report(self, *message: Any, fds: tuple[int, ...] = ()) -> None:
        messages.try_send(self._server, message, *fds)

    def _serve(self) -> None:
        """Start workers, and report their ends, until the server is gone."""
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        # The server is gone from this time on.
        end_s = math.inf
        while self._workers or end_s == math.inf:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return  # This process ends, and so do its workers.
            for fd, _ in poll.poll(None if end_s == math.inf else round(left_s * 1e3)):
                if fd in self._workers:
                    poll.unregister(fd)
                    self._reap(fd)
                    continue
                received = messages.receive(self._server)
                if received is None:
                    poll.unregister(self._server)
                    end_s = time.monotonic() + LEAVE_S
                    continue
                (number, serial, workers, cores), (socket_fd,) = received
                with contextlib.suppress(OSError):  # Some may no longer be available.
                    os.sched_setaffinity(0, cores)
                pidfd = self._start(number, serial, workers, socket_fd)
                poll.register(pidfd, select.POLLIN)

    def _start(self, number: int, serial: int, workers: int, socket_fd: int) -> int:
        """Fork a worker; return its pidfd."""

        def run_child() -> None:
            for other in self._workers:
                os.close(other)
            self._server.close()
            with socket.socket(fileno=socket_fd) as server:
                server.settimeout(None)  # The program can set another default.
                self._run_worker(number, workers, server)

        pid, pidfd = fork(run_child)
        os.close(socket_fd)
        self._workers[pidfd] = pid, number, serial
        self._report("started", number, serial, pid, fds=(pidfd,))
        return pidfd

    def _run_worker(self, number: int, workers: int, server: socket.socket) -> None:
        look_like_worker(WORKER_NAME.format(number), self._state["pid"])
        nesting.become_worker()
        restore_signals_in_forks()
        # Python reseeds its own generator after a fork; NumPy does not.
        if random := sys.modules.get("numpy.random"):
            random.seed()
        base = self._base
        if self._loads_in_workers:
            try:
                base = self._load()
            except BaseException:
                messages.send(server, ("failed", traceback.format_exc()))
                return
        pool_worker.serve(base, server, self._arena, number, workers)
        # Finalize iterators in reference cycles. Older objects are frozen.
        gc.collect()

    def _reap(self, pidfd: int) -> None:
        pid, number, serial = self._workers.pop(pidfd)
        try:
            status = os.waitpid(pid, 0)[1]
        except ChildProcessError:  # User code has reaped it.
            status = 0
        os.close(pidfd)
        self._report("exited", number, serial, status)
