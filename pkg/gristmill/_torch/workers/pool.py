"""The worker processes of one iterator, as its own process sees them.

They are asked for batches one by one, each by its number, and answer in the order in
which they were asked.  Slots, exits and restarts are the core's business
(`_core.Scheduler`, kind REQUEST); here requests are packed, batches unpacked, and what
went wrong is put into torch's words.
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
from gristmill._engine import failures, remote, starting
from gristmill._engine.stage_times import RECEIVE, StageTimes, each
from gristmill._engine.stream import Runnable
from gristmill._engine.usage import NearUsage
from gristmill._engine.workers import LauncherWorkers, received, usage_of
from gristmill._torch.batches import encoding
from gristmill._torch.batches.program_pickling import ProgramPickle
from gristmill._torch.indices import requests
from gristmill._torch.private import ExceptionWrapper
from gristmill._torch.workers import start_method
from gristmill._torch.workers.deaths import worker_died
from gristmill._torch.workers.fetch import Exhausted, FetchProgram, Unsent
from gristmill._torch.workers.started import StartedProcesses
from gristmill._workers import nesting

# What workers of the launcher find imported.
_IMPORTED = (
    "torch",
    "gristmill._torch.workers.fetch",
    "gristmill._torch.batches.native",
)

# How long a process may take to start before its pid is asked for in vain.
_START_S = 60.0
_STEP_S = 0.002


class Answer(NamedTuple):
    """What came of a request.

    Attributes:
        worker: Who was asked.
        value: The batch; in its place `Exhausted`, or torch's `ExceptionWrapper` around
            what the user's code raised.
        error: What else went wrong.
        state: Of the worker, pickled, where that was asked for.
    """

    worker: int
    value: Any = None
    error: BaseException | None = None
    state: bytes | None = None

    @property
    def exhausted(self) -> bool:
        """Whether the dataset of that worker has no more."""
        return isinstance(self.value, Exhausted)

    def result(self) -> Any:
        """The batch; raises what was raised in its place."""
        if self.error is not None:
            raise self.error
        if isinstance(self.value, ExceptionWrapper):
            self.value.reraise()
        return self.value


class _Options(NamedTuple):
    """What a pool wants to know of its loader, under the same names."""

    max_restarts: int
    multiprocessing_context: Any
    memory_limit: int | None
    in_order: bool


class WorkerPool:
    """Starts workers and asks them for batches.

    Args:
        window: Requests that may be unanswered at a time, at most.

    Attributes:
        closed: Whether the workers were told to end.
        scheduler: The core's side of it.
        started: The processes, where `multiprocessing` starts them.
        workers: How many there are.
    """

    def __init__(self, program: FetchProgram, loader: Any, window: int) -> None:
        self.workers = workers = program.workers
        self._program = program
        self._options = _Options(*(getattr(loader, name) for name in _Options._fields))
        self._restarts = loader.max_restarts > 0
        # None for `start_method.default`.
        self._context = loader.multiprocessing_context
        self._owner = os.getpid()
        self._asked = [0] * workers
        # For each request that is not answered the file that it is in, if any.
        self._files: list[collections.deque[io.FileIO | None]]
        self._files = [collections.deque() for _ in range(workers)]
        self._epoch = 0
        self._times = StageTimes()
        self._seed = program.shared_seed
        # Whether workers were waited for before.
        self._begun = False
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
        return [_WorkerProcess(self, w) for w in range(self.workers)]

    def successor(self, workers: int, window: int) -> WorkerPool:
        """Another pool over the same map-style dataset, which is not started."""
        states = [None] * workers if self._program.states else ()
        program = dataclasses.replace(self._program, workers=workers, states=states)
        return WorkerPool(program, self._options, window)

    def start(self) -> None:
        """Let the workers start, without waiting for them.

        Raises:
            RuntimeError: This process is a worker.
            Exception: Whatever pickling the program raised, where it must be pickled.
        """
        nesting.check_may_start_workers()
        context = self._context or start_method.default()
        if isinstance(context, start_method.LauncherContext):
            try:
                return self._launch()
            except Exception:
                if self._context is not None:
                    raise
                # Only a fork can have the program.
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
            _IMPORTED,
            inherited=program.inherited,
        ).start()

    def ask(
        self, worker: int, keys: Any, epoch: int = 0, *, with_state: bool = False
    ) -> None:
        """Ask a worker for a batch, after all that it was asked for before.

        Args:
            worker: Its number.
            keys: Of an iterable dataset what torch's fetchers take, a list as long as a
                batch or None.
            epoch: In which random steps draw.
            with_state: Whether the worker's state is to come with the batch.
        """
        request = keys
        if self._program.iterable:
            size, number = keys and len(keys), self._asked[worker]
            request = requests.Next(self._epoch, number, size, self._seed)
            self._asked[worker] += 1
        self.send(worker, requests.WithState(request) if with_state else request, epoch)

    def beginning(self) -> requests.WithState:
        """Asks a worker for its state before its first batch."""
        return requests.WithState(requests.Next(self._epoch, 0, 0, self._seed))

    def next(self, timeout_s: float | None = None) -> Answer | None:
        """The answer that is due; None where nothing was asked for.

        Args:
            timeout_s: How long to wait for it; None for ever.

        Raises:
            TimeoutError: It did not come in time.
            RuntimeError: A worker died, or the iterator is of another process.
            ArenaFull: The batches that the caller keeps leave no room.
        """
        timeout_s = -1.0 if timeout_s is None else timeout_s
        if self._begun:
            due = self.scheduler.next(timeout_s)
        else:
            due = starting.first_due(self.scheduler, timeout_s)
            self._begun = True
        match due.kind:
            case "output":
                return self._answer(due)
            case "end":
                return None
            case "timeout":
                raise TimeoutError
            case "full":
                raise remote.too_full(due, "A batch", "batches", "clone")
            case "exited":
                raise worker_died(due)
        raise remote.gone(self._owner)

    def usage(self) -> NearUsage:
        """What the workers, and this process, were measured to do."""
        usage = usage_of(self.scheduler, self._program)
        stages = {**usage.stages, **each(self._times.by_clock)}
        return usage._replace(stages=stages)

    def reset(self, shared_seed: int | None = None) -> None:
        """Begin a new epoch with the same workers; what is unanswered is dropped."""
        workers = self._program.workers
        self._epoch += 1
        self._seed = shared_seed
        self._asked = [0] * workers
        self._drop_files()
        self.scheduler.reset([(0,)] * workers, 0, [False] * workers)

    def close(self) -> None:
        """End the workers.  Batches that were given stay valid."""
        self.closed = True
        self.scheduler.close()
        if self.started is not None:
            self.started.close()
        self._drop_files()

    def send(self, worker: int, request: Any, epoch: int = 0) -> None:
        """Ask a worker for anything, see `requests.packed`, in an epoch."""
        words, file = requests.packed(request), None
        if len(words) + requests.EPOCH_WORDS > self._program.position_capacity:
            words, file = requests.moved_to_file(words)
        self._files[worker].append(file)
        if epoch:
            words = requests.in_epoch(words, epoch)
        self.scheduler.ask(worker, words)

    def _drop_files(self) -> None:
        for files in self._files:
            while files:
                if file := files.popleft():
                    file.close()

    def _answer(self, due: _core.NextResult) -> Answer:
        worker = due.stream
        answer = self._received(due)
        self.scheduler.advance()
        if self._files[worker] and (file := self._files[worker].popleft()):
            file.close()
        return answer

    def _received(self, due: _core.NextResult) -> Answer:
        """What came, which is measured now and then."""
        times = self._times
        times.left -= 1
        if times.left:
            return self._decoded(due)
        return times.measured(RECEIVE, self._decoded, due)

    def _decoded(self, due: _core.NextResult) -> Answer:
        element, _ = received(self.scheduler, due)
        if due.error:
            return Answer(due.stream, error=failures.unpack_failure(element))
        try:
            value, state = encoding.decoded(element)
        except Exception as error:
            error.add_note(failures.RECEIVING)
            return Answer(due.stream, error=error, state=encoding.state_of(element))
        if type(value) is Unsent:
            failure = failures.unpack_failure(value.failure)
            return Answer(due.stream, error=failure, state=state)
        return Answer(due.stream, value, state=state)


class _WorkerProcess:
    """Looks like the `multiprocessing.Process` of a worker.

    Whoever keeps it does not keep the dataset.
    """

    daemon = True

    def __init__(self, pool: WorkerPool, worker: int) -> None:
        self._scheduler = pool.scheduler
        self._started = pool.started
        # A pool is closed before nobody holds it any more.
        self._pool = weakref.ref(pool)
        self._worker = worker

    @property
    def name(self) -> str:
        # That which the worker's own code sees.
        process = self._process()
        return process.name if process else f"GristmillWorker-{self._worker}"

    @property
    def pid(self) -> int | None:
        deadline = time.monotonic() + _START_S
        while not (pid := self._look()[0]) and time.monotonic() < deadline:
            time.sleep(_STEP_S)
        return pid or None

    ident = pid

    @property
    def exitcode(self) -> int | None:
        if self.is_alive():
            return None
        status = self._look()[2]  # None of one that was told to stop.
        return 0 if status is None else os.waitstatus_to_exitcode(status)

    def is_alive(self) -> bool:
        # Or is about to be.
        pool = self._pool()
        pid, alive, _ = self._look()
        return pool is not None and not pool.closed and (alive or not pid)

    def join(self, timeout: float | None = None) -> None:
        pid = self._look()[0]
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

    def _look(self) -> tuple[int, bool, int | None]:
        """Pid of the process, whether it is alive, how it ended."""
        return self._scheduler.processes()[self._worker]
