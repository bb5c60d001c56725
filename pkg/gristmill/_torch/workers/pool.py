"""Manages an iterator's worker processes, in the iterator's process.

Each request names its worker.  Each worker answers its requests in order.  The core
manages slots, exits and restarts (`_core.Scheduler`, kind REQUEST).  This file packs
requests, unpacks batches, and raises torch's errors.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import os
import time
import weakref
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, cast

import torch

from gristmill import _core
from gristmill._engine import failures, startup_progress, worker_texts
from gristmill._engine.stage_times import RECEIVE, StageTimes, mean_times
from gristmill._engine.stream import Runnable
from gristmill._engine.worker_stats import LocalStats
from gristmill._engine.workers import LauncherWorkers, receive_output, usage_of
from gristmill._torch.batches import encoding
from gristmill._torch.batches.program_pickling import ProgramPickle
from gristmill._torch.indices import requests
from gristmill._torch.private import ExceptionWrapper
from gristmill._torch.workers import start_method
from gristmill._torch.workers.deaths import worker_died_error
from gristmill._torch.workers.fetch import Exhausted, FetchProgram, SendFailure
from gristmill._torch.workers.started import StartedProcesses
from gristmill._workers import nesting

# The modules that the launcher's workers have imported.
_PRELOADED_MODULES = (
    "torch",
    "gristmill._torch.workers.fetch",
    "gristmill._torch.batches.native",
)

# The longest time to wait for the pid of a process that is starting.
_PID_TIMEOUT_S = 60.0
_PID_POLL_S = 0.002


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        worker: The worker's number.
        value: The batch.  Otherwise `Exhausted`, or torch's `ExceptionWrapper` around
            the exception of the user's code.
        error: Another exception, None if there is none.
        state: The worker's state, pickled, if it was requested.
    """

    worker: int
    value: Any = None
    error: BaseException | None = None
    state: bytes | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether the worker's dataset has no more batches."""
        return isinstance(self.value, Exhausted)

    def result(self) -> Any:
        """Return the batch, or raise the exception."""
        if self.error is not None:
            raise self.error
        if isinstance(self.value, ExceptionWrapper):
            self.value.reraise()
        return self.value


class _Options(NamedTuple):
    """The options of a loader that a pool uses, with the same names."""

    max_restarts: int
    multiprocessing_context: Any
    memory_limit: int | None
    in_order: bool


class WorkerPool:
    """Starts workers, and sends them requests for batches.

    The iterator's thread sends requests.  It also takes the answers, unless a
    `PinThread` does.  Only the thread that takes the answers uses `_times` and
    `_has_waited`.

    Args:
        window: The number of requests that may be unanswered at a time.

    Attributes:
        closed: Whether `close` was called.
        scheduler: The core's scheduler of the requests.
        started: The processes; None if the launcher starts them.
        workers: The number of workers.
    """

    def __init__(self, program: FetchProgram, loader: Any, window: int) -> None:
        self.workers = workers = program.workers
        self._program = program
        self._options = _Options(*(getattr(loader, name) for name in _Options._fields))
        self._restarts = loader.max_restarts > 0
        # The user's context, or None for the default.
        self._context = loader.multiprocessing_context
        self._owner_pid = os.getpid()
        # The iteration over the dataset, and the batches requested from each worker
        # in it.
        self._iteration = 0
        self._request_counts = [0] * workers
        self._shared_seed = program.shared_seed
        # Per worker, in order: the file of each unanswered request, or None if the
        # request fit into shared memory.  Sending a request appends to it, and taking
        # the answer removes the oldest.
        self._files: list[collections.deque[io.FileIO | None]]
        self._files = [collections.deque() for _ in range(workers)]
        self._times = StageTimes()
        # True after the first call of `next`.
        self._has_waited = False
        self.closed = False
        self.started: StartedProcesses | None = None
        self.scheduler = _core.Scheduler(
            workers=workers,
            buffer=max(0, -(-window // workers) - 2),
            kind=_core.UnitKind.REQUEST,
            unit_records=1,
            max_restarts=loader.max_restarts,
            memory_limit=loader.memory_limit or 0,
            lengths=[-1] * workers,
            positions=[(0,)] * workers,
            next_stream=0,
            ended=[False] * workers,
            position_capacity=program.position_capacity,
            in_order=loader.in_order,
            exits_final=not self._restarts,
        )

    @property
    def processes(self) -> list[_WorkerProcess]:
        """The workers' processes, by number."""
        return [_WorkerProcess(self, worker) for worker in range(self.workers)]

    def make_successor(self, workers: int, window: int) -> WorkerPool:
        """Return a pool, not yet started, for the same map-style dataset."""
        states = [None] * workers if self._program.states else ()
        program = dataclasses.replace(self._program, workers=workers, states=states)
        return WorkerPool(program, self._options, window)

    def start(self) -> None:
        """Start the workers, without waiting for them.

        Raises:
            RuntimeError: This process is a worker.
            Exception: The program has to be pickled, and pickling it failed.
        """
        nesting.check_may_start_workers()
        context = self._context or start_method.default()
        if isinstance(context, start_method.LauncherContext):
            try:
                return self._launch()
            except Exception:
                if self._context is not None:
                    raise
                # The program cannot be pickled. A fork inherits it without pickling.
                context = torch.multiprocessing.get_context("fork")
        self.started = StartedProcesses(
            self.scheduler, self._program, context, self._restarts
        )
        self.started.start()

    def _launch(self) -> None:
        program = ProgramPickle(self._program)
        LauncherWorkers(
            self.scheduler,
            cast(Runnable, program),
            _PRELOADED_MODULES,
            inherited=program.inherited,
        ).start()

    def request_batch(
        self, worker: int, keys: Any, draw_epoch: int = 0, *, with_state: bool = False
    ) -> None:
        """Request a batch from a worker, after its earlier requests.

        Args:
            worker: The worker's number.
            keys: For a map-style dataset, the batch's keys.  For an iterable one, only
                the length is used; None for a single sample.
            draw_epoch: The epoch for random steps; 0 sends none.
            with_state: Whether the answer contains the worker's state.
        """
        request = keys
        if self._program.iterable:
            size, number = keys and len(keys), self._request_counts[worker]
            request = requests.NextBatch(
                self._iteration, number, size, self._shared_seed
            )
            self._request_counts[worker] += 1
        if with_state:
            request = requests.WithState(request)
        self.send(worker, request, draw_epoch)

    def initial_state_request(self) -> requests.WithState:
        """Return a request for a worker's state before its first batch."""
        return requests.WithState(
            requests.NextBatch(self._iteration, 0, 0, self._shared_seed)
        )

    def next(self, timeout_s: float | None = None) -> Answer | None:
        """Wait for the next answer, and return it; None if no request is unanswered.

        Args:
            timeout_s: The longest time to wait; None waits forever.

        Raises:
            TimeoutError: The answer did not arrive in time.
            RuntimeError: A worker died, or the iterator belongs to another process.
            ArenaFull: The batches that the caller keeps leave no room.
        """
        timeout_s = -1.0 if timeout_s is None else timeout_s
        if self._has_waited:
            result = self.scheduler.next(timeout_s)
        else:
            result = startup_progress.wait_for_first(self.scheduler, timeout_s)
            self._has_waited = True
        match result.kind:
            case "output":
                return self._take_answer(result)
            case "end":
                return None
            case "timeout":
                raise TimeoutError
            case "full":
                raise worker_texts.arena_full_error(
                    result, "A batch", "batches", "clone"
                )
            case "exited":
                raise worker_died_error(result)
        raise worker_texts.closed_error(self._owner_pid)

    def usage(self) -> LocalStats:
        """Return the measured times of the workers and of this process."""
        usage = usage_of(self.scheduler, self._program)
        stages = {**usage.stages, **mean_times(self._times.by_clock)}
        return usage._replace(stages=stages)

    def reset(self, shared_seed: int | None = None) -> None:
        """Begin a new epoch with the same workers, and drop unanswered requests."""
        workers = self._program.workers
        self._iteration += 1
        self._shared_seed = shared_seed
        self._request_counts = [0] * workers
        self._drop_files()
        self.scheduler.reset([(0,)] * workers, 0, [False] * workers)

    def close(self) -> None:
        """End the workers.  Delivered batches stay valid."""
        self.closed = True
        self.scheduler.close()
        if self.started is not None:
            self.started.close()
        self._drop_files()

    def send(self, worker: int, request: Any, draw_epoch: int = 0) -> None:
        """Send a worker a request in a form that `requests.pack` accepts.

        `draw_epoch` is the epoch for random steps; 0 sends none.
        """
        words, file = requests.pack(request), None
        if len(words) + requests.EPOCH_WORDS > self._program.position_capacity:
            words, file = requests.move_to_file(words)
        self._files[worker].append(file)
        if draw_epoch:
            words = requests.with_epoch(words, draw_epoch)
        self.scheduler.add_request(worker, words)

    def _drop_files(self) -> None:
        for files in self._files:
            while files:
                if file := files.popleft():
                    file.close()

    def _take_answer(self, result: _core.NextResult) -> Answer:
        worker = result.stream
        answer = self._receive(result)
        self.scheduler.advance()
        if self._files[worker] and (file := self._files[worker].popleft()):
            file.close()
        return answer

    def _receive(self, result: _core.NextResult) -> Answer:
        """Decode an answer, and time a sample of these calls."""
        times = self._times
        times.calls_until_measured -= 1
        if times.calls_until_measured:
            return self._decode(result)
        return times.measure(RECEIVE, self._decode, result)

    def _decode(self, result: _core.NextResult) -> Answer:
        element, _ = receive_output(self.scheduler, result)
        if result.error:
            return Answer(result.stream, error=failures.unpack_failure(element))
        try:
            value, state = encoding.decode(element)
        except Exception as error:
            error.add_note(failures.RECEIVING)
            return Answer(result.stream, error=error, state=encoding.state_of(element))
        if type(value) is SendFailure:
            send_error = failures.unpack_failure(value.packed_error)
            return Answer(result.stream, error=send_error, state=state)
        return Answer(result.stream, value, state=state)


class _ProcessStatus(NamedTuple):
    pid: int  # 0 until the process has started.
    is_alive: bool
    # In the format of waitpid(2); None before the end, and after `WorkerPool.close`.
    wait_status: int | None


class _WorkerProcess:
    """Has the interface of a worker's `multiprocessing.Process`.

    It holds no reference to the dataset.
    """

    daemon = True

    def __init__(self, pool: WorkerPool, worker: int) -> None:
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
