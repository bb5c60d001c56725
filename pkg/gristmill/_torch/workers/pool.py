"""Manages an iterator's worker processes, in the iterator's process.

Each request names its worker.  Each worker answers its requests in order.  The core
manages slots, exits and restarts (`_core.Scheduler`, kind REQUEST).  This file packs
requests, unpacks batches, and raises torch's errors.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import os
from typing import Any, NamedTuple, cast

import torch

from gristmill import _core
from gristmill._engine import failures, startup_progress, worker_texts
from gristmill._engine.stage_times import RECEIVE, StageTimes, mean_times
from gristmill._engine.stream import Runnable
from gristmill._engine.worker_stats import LocalStats, RemoteStats
from gristmill._engine.workers import (
    LauncherWorkers,
    WorkerBackend,
    Workers,
    receive_output,
    usage_of,
)
from gristmill._torch.batches import encoding
from gristmill._torch.batches.program_pickling import ProgramPickle
from gristmill._torch.indices import requests
from gristmill._torch.private import ExceptionWrapper
from gristmill._torch.workers import start_method
from gristmill._torch.workers.deaths import worker_died_error
from gristmill._torch.workers.fetch import Exhausted, FetchProgram, SendFailure
from gristmill._torch.workers.started import StartedProcesses
from gristmill._torch.workers.worker_process import WorkerProcess
from gristmill._workers import nesting

# The modules that the launcher's workers have imported.
_PRELOADED_MODULES = (
    "torch",
    "gristmill._torch.workers.fetch",
    "gristmill._torch.batches.native",
)


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        worker: The worker's number.
        value: The batch, or the result of another request.  `Exhausted` at the end of
            the dataset.  Torch's `ExceptionWrapper` if the user's code raised.
        error: The exception if the request could not be read, or the batch could not
            be pickled or unpickled; else None.
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

    One thread at a time sends requests and one takes answers, possibly another one.
    `ResizablePool`'s lock orders both for a pool that it has not switched to.  Only the
    thread that takes answers changes `_times` and `_has_waited`.  `close` may run while
    another thread takes an answer.

    Args:
        program: What the workers run, and their number.
        options: A loader, or the `_Options` of one.
        window: The number of requests that may be unanswered at a time.

    Attributes:
        closed: Whether `close` was called.
        scheduler: The core's scheduler of the requests.
        started: The processes; None if the launcher starts them.
        workers: The number of workers.
    """

    def __init__(self, program: FetchProgram, options: Any, window: int) -> None:
        self.workers = workers = program.workers
        self._program = program
        self._options = _Options(*(getattr(options, name) for name in _Options._fields))
        self._may_restart = options.max_restarts > 0
        # Runs the workers in place of processes of this loader, or None.
        backend: WorkerBackend | None = getattr(options, "_worker_backend", None)
        self._backend = backend
        # The workers of the backend, after `start`.
        self._backend_workers: Workers | None = None
        # The user's context, or None for the default.
        self._context = options.multiprocessing_context
        # To explain, in a fork of this process, why `next` fails there.
        self._owner_pid = os.getpid()
        # The iteration over the dataset, and the batches requested from each worker
        # in it.
        self._iteration = 0
        self._request_counts = [0] * workers
        self._shared_seed = program.shared_seed
        # Per worker, in order: the file of each unanswered request, or None if the
        # request fit into shared memory.  Sending a request appends to it; taking the
        # answer, or `close` in another thread, removes the oldest.  Both are atomic.
        self._files: list[collections.deque[io.FileIO | None]]
        self._files = [collections.deque() for _ in range(workers)]
        self._times = StageTimes()
        # True after the first call of `next`.
        self._has_waited = False
        self.closed = False
        self.started: StartedProcesses | None = None
        self.scheduler = _core.Scheduler(
            workers=workers,
            # The core allows ``workers * (buffer + 2)`` units at a time.
            buffer=max(0, -(-window // workers) - 2),
            kind=_core.UnitKind.REQUEST,
            unit_records=1,
            max_restarts=options.max_restarts,
            memory_limit=options.memory_limit or 0,
            # Each worker is a stream.  Requests, not positions, determine its outputs.
            lengths=[-1] * workers,
            positions=[(0,)] * workers,
            next_stream=0,
            ended=[False] * workers,
            position_capacity=program.position_capacity,
            in_order=options.in_order,
            exits_final=not self._may_restart,
        )

    @property
    def processes(self) -> list[WorkerProcess]:
        """The workers' processes, by number; none if a backend has them."""
        if self._backend is not None:
            return []
        return [WorkerProcess(self, worker) for worker in range(self.workers)]

    def make_successor(self, workers: int, window: int) -> WorkerPool:
        """Return a pool, not yet started, for the same map-style dataset.

        Raises:
            ValueError: The workers are not processes of this loader.
        """
        if self._backend is not None:
            raise ValueError(
                "The number of workers cannot change: they are those of"
                f" {self._backend}. Pass another num_workers to the loaders of all"
                " ranks."
            )
        # None: the new workers begin with the dataset unchanged.
        states = [None] * workers if self._program.states else ()
        program = dataclasses.replace(self._program, workers=workers, states=states)
        return WorkerPool(program, self._options, window)

    def start(self) -> None:
        """Start the workers, without waiting for them.

        Raises:
            RuntimeError: This process is a worker.
            Exception: The program could not be pickled, or a process not be started.
        """
        nesting.check_may_start_workers()
        if self._backend is not None:
            program = cast(Runnable, self._program)
            workers = self._backend.workers(self.scheduler, program, None)
            self._backend_workers = workers
            return workers.start()
        context = self._context or start_method.default()
        if isinstance(context, start_method.LauncherContext):
            try:
                return self._launch()
            except Exception:
                if self._context is not None:
                    raise
                # Usually the program cannot be pickled.  A fork of this process needs
                # neither a pickle nor the launcher.
                context = torch.multiprocessing.get_context("fork")
        self.started = StartedProcesses(
            self.scheduler, self._program, context, self._may_restart
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
        if self._has_waited or self._backend is not None:
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
                workers = self._backend_workers
                details = workers.death_details(result.worker) if workers else ""
                raise worker_died_error(result, details)
        # "closed", or "forked" in another process.
        raise worker_texts.closed_error(self._owner_pid)

    def usage(self) -> LocalStats | RemoteStats | None:
        """Return the measured times of the workers and of this process."""
        if self._backend is not None:
            workers = self._backend_workers
            return None if workers is None else workers.usage()
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
        if self._backend_workers is not None:
            self._backend_workers.close()
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
        for worker in range(self.workers):
            while self._drop_oldest_file(worker):
                pass

    def _drop_oldest_file(self, worker: int) -> bool:
        """Close the file of the oldest request; return False without one."""
        try:
            file = self._files[worker].popleft()
        except IndexError:  # Another thread may have removed it, so try first.
            return False
        if file is not None:
            file.close()
        return True

    def _take_answer(self, result: _core.NextResult) -> Answer:
        """Decode the answer, and let the scheduler go on to the next one."""
        worker = result.stream
        answer = self._receive(result)
        self.scheduler.advance()
        self._drop_oldest_file(worker)
        return answer

    def _receive(self, result: _core.NextResult) -> Answer:
        """Decode an answer, and time a sample of these calls."""
        times = self._times
        times.calls_until_measured -= 1
        if times.calls_until_measured:
            return self._decode(result)
        return times.measure(RECEIVE, self._decode, result)

    def _decode(self, result: _core.NextResult) -> Answer:
        if self._backend_workers is not None:
            element, _ = self._backend_workers.receive(result)
        else:
            element, _ = receive_output(self.scheduler, result)
        if result.error:  # See `Answer.error`; errors of users' code are in `value`.
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
