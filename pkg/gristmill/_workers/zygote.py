"""The zygote: loads a program once and forks the workers that run it."""

import contextlib
import gc
import importlib
import os
import pickle
import select
import socket
import sys
import time
import traceback
import types
from collections import deque
from collections.abc import Sequence
from multiprocessing import process
from typing import Any

from gristmill._base import log
from gristmill._workers import inheriting, nesting, settings
from gristmill._workers.main_module import Outcome
from gristmill._workers.processes import (
    EXITED,
    LOAD_IN_WORKERS,
    STARTED,
    Children,
    Message,
    lasting_threads,
    look_like_worker,
    receive,
    restore_signals_in_forks,
    send,
    send_failure,
)

# How often to check for idle starting workers, and the age from which a worker may
# count as idle.
_IDLE_CHECK_S = 0.05
# After this time a worker no longer delays the start of others.
_MAX_START_S = 2.0
# The time that workers have to end after the supervisor has closed the socket.
_LEAVE_S = 1.0


class Zygote:
    """Loads the program and forks the workers.

    Args:
        group: The number of the supervisor's worker group.
        loads_in_workers: Whether each worker loads the program for itself.
        main: The result of running the main script in the launcher.
        fds: The descriptors of the socket to the supervisor, the setup (the pickled
            dict from `parent.setup`), the blob (the pickled program), the arena (the
            memory shared with the workers), and the eventfd by which workers wake the
            parent, followed by those that the program inherits.  The zygote owns them.
    """

    def __init__(
        self, group: int, *, loads_in_workers: bool, main: Outcome, fds: Sequence[int]
    ) -> None:
        self._group = group
        self._loads_in_workers = loads_in_workers
        self._main = main
        self._supervisor = socket.socket(fileno=fds[0])
        setup_fd, self._blob_fd, self._arena_fd, self._notify_fd = fds[1:5]
        inheriting.received_fds[:] = fds[5:]
        with open(setup_fd, "rb") as file:  # Closes `setup_fd`.
            file.seek(0)  # Another zygote of this group may have read it.
            self._setup = pickle.load(file)
        # The requests for workers that were not started yet.
        self._start_requests: deque[Message] = deque()
        self._workers = Children(self._supervisor, EXITED)
        self._throttle = StartThrottle()
        # Defines `run_main`, `load` and `serve`, for example `_engine.worker`.
        self._entry: types.ModuleType
        # None until it is loaded: in this process, or in each worker.
        self._program: Any = None

    def run(self) -> None:
        """Load the program, then fork workers until the supervisor closes its end."""
        with self._supervisor:
            self._run()

    def _run(self) -> None:
        nesting.become_worker()
        try:
            self._entry = adopt_parent_state(self._setup)
            # The failure does not matter to workers that do not run the program.
            if self._main.failure and self._setup["main"]:
                self._send_failure(self._main.failure)
                return
            if not self._loads_in_workers:
                if self._workers_run_main:
                    # The program starts threads, which a fork would lose. This zygote
                    # exits; the next one lets each worker load the program.
                    send(self._supervisor, Message(LOAD_IN_WORKERS))
                    return
                self._load()
        except BaseException:
            self._send_failure(traceback.format_exc())
            return
        if not self._loads_in_workers and warn_of_threads():
            send(self._supervisor, Message(LOAD_IN_WORKERS))
            return
        freeze_objects()
        try:
            self._serve()
        except OSError:
            self._send_failure(traceback.format_exc())

    @property
    def _workers_run_main(self) -> bool:
        """True if each worker runs the main script for itself."""
        return self._main.in_workers and bool(self._setup["main"])

    def _load(self) -> None:
        """Load the program, in the zygote or in each worker."""
        with nesting.importing():
            if self._workers_run_main:
                self._entry.run_main(self._setup["main"])
            self._program = self._entry.load(self._blob_fd)

    def _send_failure(self, reason: str) -> None:
        send_failure(self._supervisor, self._group, reason)

    def _serve(self) -> None:
        """Start the requested workers until the supervisor closes its end."""
        while True:
            check_ms = round(_IDLE_CHECK_S * 1e3) if self._start_requests else None
            for ready in self._workers.wait(check_ms):
                if ready in self._throttle.starting:
                    self._forget_start_pipe(ready)
                elif received := receive(self._supervisor):
                    self._start_requests.append(received[0])
                else:
                    return self._let_workers_leave()
            if self._start_requests:
                for fd in self._throttle.pipes_to_ignore():
                    self._forget_start_pipe(fd)
            while self._start_requests and self._throttle.has_room():
                self._start(self._start_requests.popleft())

    def _let_workers_leave(self) -> None:
        """Wait up to `_LEAVE_S` for the workers, which were asked to stop.

        The remaining ones are killed when this process ends.
        """
        self._workers.poll.unregister(self._supervisor)
        for fd in [*self._throttle.starting]:
            self._forget_start_pipe(fd)
        deadline = time.monotonic() + _LEAVE_S
        while self._workers.count and (left_s := deadline - time.monotonic()) > 0:
            self._workers.wait(round(left_s * 1e3))

    def _start(self, request: Message) -> None:
        """Fork a worker, which closes its end of a new pipe after its first unit."""
        # See `StartThrottle`.
        started_read, started_write = os.pipe()

        def run_child() -> None:
            os.close(started_read)
            self._run_worker(request, started_write)

        pid = self._workers.fork(request._replace(kind=STARTED), run_child)
        os.close(started_write)
        self._throttle.add(started_read, pid)
        self._workers.poll.register(started_read, select.POLLIN)

    def _forget_start_pipe(self, started_read: int) -> None:
        """Count a worker as started, and close the pipe."""
        self._workers.poll.unregister(started_read)
        self._throttle.drop(started_read)
        os.close(started_read)

    def _run_worker(self, request: Message, started_write: int) -> None:
        """Serve as a worker, in the fork, until there are no more units."""
        # These are copies of the zygote's ends of other workers' pipes.
        for fd in self._throttle.starting:
            os.close(fd)
        name = self._setup["name"].format(request.worker)
        look_like_worker(name, self._setup["pid"])
        nesting.become_worker()
        restore_signals_in_forks()
        inheriting.become_child()
        if self._loads_in_workers:
            try:
                self._load()
            except BaseException:
                self._send_failure(traceback.format_exc())
                return
        # The worker sends no more messages.
        self._supervisor.close()
        # Python reseeds its own generator after a fork; NumPy does not.
        if random := sys.modules.get("numpy.random"):
            random.seed()
        self._entry.serve(
            self._program,
            self._arena_fd,
            self._notify_fd,
            started_write,
            request.worker,
            request.generation,
        )
        # Finalize iterators in reference cycles. Older objects are frozen.
        gc.collect()
        inheriting.leave_child()


def adopt_parent_state(state: dict[str, Any]) -> types.ModuleType:
    """Adopt the state in `parent.setup` and return the entry module.

    The user's process may have changed since it started the launcher.
    """
    look_like_worker("GristmillWorker", state["pid"])
    process.current_process().authkey = state["authkey"]
    os.environ.clear()
    os.environ.update(state["environ"])
    sys.path[:] = state["sys_path"]
    sys.argv[:] = state["argv"]
    os.chdir(state["cwd"])
    with contextlib.suppress(OSError):  # These cores may no longer be available.
        os.sched_setaffinity(0, state["affinity"])
    settings.adopt(state["settings"])
    return importlib.import_module(state["entry"])


def warn_of_threads() -> bool:
    """Warn of threads that a fork would lose; return whether there are any."""
    if threads := lasting_threads():
        log.warning(
            "Unpickling the pipeline started %d thread(s). Threads do not survive a"
            " fork, so each worker will unpickle the pipeline itself, which takes more"
            " time and memory. To avoid this, start threads on first use, not on"
            " import.",
            threads,
        )
    return threads > 0


def freeze_objects() -> None:
    """Let the collector skip all objects, so that forks share their pages."""
    gc.collect()
    gc.freeze()


class StartThrottle:
    """Limits the number of workers that start at the same time to the number of cores.

    A worker counts as started once it has computed its first unit. It then closes its
    end of a pipe. If all started at once, they would share the cores, and each first
    output would be late. A worker that uses little CPU time, because it waits for its
    source, does not count.

    Attributes:
        starting: The pid and the start time of each worker that is starting, by this
            process's end of its pipe.
    """

    def __init__(self) -> None:
        self.starting: dict[int, tuple[int, float]] = {}

    def add(self, fd: int, pid: int) -> None:
        self.starting[fd] = pid, time.monotonic()

    def drop(self, fd: int) -> None:
        del self.starting[fd]

    def has_room(self) -> bool:
        return len(self.starting) < len(os.sched_getaffinity(0))

    def pipes_to_ignore(self) -> list[int]:
        """Return the pipes of workers that no longer delay others: idle or slow."""
        now = time.monotonic()
        fds = []
        for fd, (pid, start) in self.starting.items():
            running_s = now - start
            # An idle worker has used less than a quarter of its time.
            is_idle = running_s > _IDLE_CHECK_S and _processor_time(pid) < running_s / 4
            if is_idle or running_s > _MAX_START_S:
                fds.append(fd)
        return fds


def _processor_time(pid: int) -> float:
    """Return the processor time of a child, in seconds; 0 if it is gone."""
    # The clock id that clock_getcpuclockid(3) derives from a pid.
    clock = (~pid << 3) | 2
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0
