"""The worker processes of one iterator, as its own process sees them.

They are asked for batches one by one, each by its number, and answer in the order in
which they were asked.  Slots, exits and restarts are the core's business
(`_core.Scheduler`, kind REQUEST); here requests are packed, batches unpacked, and what
went wrong is put into torch's words.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import threading
from multiprocessing.context import BaseContext
from typing import Any

import torch

from gristmill import _core
from gristmill._engine import failures, packing, remote
from gristmill._engine.remote import ENTRY
from gristmill._torch.batches import sending
from gristmill._torch.indices import requests
from gristmill._torch.indices.aside import Aside
from gristmill._torch.private import ExceptionWrapper
from gristmill._torch.workers import start_method
from gristmill._torch.workers.carrying import CarriedProgram
from gristmill._torch.workers.fetching import Exhausted, FetchProgram
from gristmill._torch.workers.processes import StartedProcesses
from gristmill._workers import launcher
from gristmill.errors import WorkerDied

# What workers of the launcher find imported.
_IMPORTED = (
    "torch",
    "gristmill._torch.workers.fetching",
    "gristmill._torch.workers.stateful_fetching",
    "gristmill._torch.workers.carrying",
    "gristmill._torch.batches.native",
)

# How long a process may take to start before its pid is asked for in vain.
_BIRTH_S = 60.0
_STEP_S = 0.002


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came of a request.

    Attributes:
        worker: Who was asked.
        value: The batch; nothing where the dataset of that worker has no more.
        exhausted: Whether it has no more.
        failure: What the user's code raised in its place.
        state: Of the worker, pickled, where that was asked for.
    """

    worker: int
    value: Any = None
    exhausted: bool = False
    failure: ExceptionWrapper | BaseException | None = None
    state: bytes | None = None

    def result(self) -> Any:
        """The batch; raises what was raised in its place."""
        if isinstance(self.failure, ExceptionWrapper):
            self.failure.reraise()
        if self.failure is not None:
            raise self.failure
        return self.value


class Crew:
    """Starts workers and asks them for batches.

    Args:
        program: What they run.
        window: Requests that may be unanswered at a time, at most.
        in_order: Whether answers come in the order of requests, else as they are done.
        max_restarts: How often a batch that killed its worker is tried again; with 0
            any worker's death is an error.
        memory_limit: Bytes of shared memory that batches may take, kept ones included;
            0 for 80 % of what there is.
        context: How processes are started; None for `start_method.default`.

    Attributes:
        closed: Whether the workers were told to end.
    """

    def __init__(
        self,
        program: FetchProgram,
        *,
        window: int,
        in_order: bool = True,
        max_restarts: int = 0,
        memory_limit: int = 0,
        context: BaseContext | None = None,
    ) -> None:
        self._program = program
        self._max_restarts = max_restarts
        self._context = context
        self.closed = False
        self._owner = os.getpid()
        self._asked = [0] * program.workers
        self._aside = Aside(program.workers)
        self._epoch = 0
        self._seed = program.shared_seed or 0
        self._others: StartedProcesses | None = None
        workers = program.workers
        self._scheduler = _core.Scheduler(
            workers=workers,
            buffer=max(0, -(-window // workers) - 2),
            kind=_core.UnitKind.REQUEST,
            unit_records=1,
            max_restarts=max_restarts,
            memory_limit=memory_limit,
            lengths=[-1] * workers,
            starts=[(0,)] * workers,
            next_stream=0,
            ended=[False] * workers,
            cursor_capacity=program.vector_capacity,
            in_order=in_order,
            exits_final=max_restarts == 0,
        )

    @property
    def processes(self) -> list[WorkerProcess]:
        """The workers' processes, by number."""
        return [WorkerProcess(self, w) for w in range(self._program.workers)]

    def start(self) -> None:
        """Let the workers start, without waiting for them.

        Raises:
            Exception: Whatever pickling the program raised, where it must be pickled.
        """
        context = self._context or start_method.default()
        if isinstance(context, start_method.LauncherContext):
            try:
                return self._launch()
            except Exception:
                if self._context is not None:
                    raise
                # Only a fork can have the program.
                context = torch.multiprocessing.get_context("fork")
        self._others = StartedProcesses(
            self._scheduler, self._program, context, self._max_restarts > 0
        )
        self._others.start()

    def _launch(self) -> None:
        blob_fd = packing.pack(CarriedProgram(self._program))
        try:
            launcher.configure(ENTRY)
            self._scheduler.start(blob_fd, launcher.setup(ENTRY), _IMPORTED)
        finally:
            os.close(blob_fd)

    def ask(self, worker: int, request: Any) -> None:
        """Ask a worker for a batch, after all that it was asked for before.

        Args:
            worker: Its number.
            request: A key, a batch of keys or a `Drawn`, of a map-style dataset; of
                another one what torch's fetchers take, a list as long as a batch or
                None.  Either as `requests.WithState`, if the program is stateful.
        """
        with_state = isinstance(request, requests.WithState)
        wanted = request.request if with_state else request
        if self._program.iterable:
            size = -1 if wanted is None else len(wanted)
            number = self._asked[worker]
            wanted = requests.Next(self._epoch, number, size, self._seed)
        self._asked[worker] += 1
        if with_state:
            wanted = requests.WithState(wanted)
        self._send(worker, wanted)

    def ask_beginning(self, worker: int) -> None:
        """Ask for a worker's state before its first batch; a stateful program's."""
        self._send(worker, requests.Begin(self._epoch, self._seed))

    def ask_generators(self, worker: int, wanted: Any = None) -> None:
        """Ask for a worker's `requests.Generators`, which are to be `wanted` then."""
        self._send(worker, requests.Generators(wanted))

    def next(self, timeout_s: float = -1.0) -> Answer | None:
        """The answer that is due; None where nothing was asked for.

        Args:
            timeout_s: How long to wait for it; for ever where that is negative.

        Raises:
            TimeoutError: It did not come in time.
            RuntimeError: A worker died, or the iterator is of another process.
            ArenaFull: The batches that the caller keeps leave no room.
        """
        due = self._scheduler.next(timeout_s)
        if due.kind == "output":
            return self._answer(due)
        if due.kind == "end":
            return None
        if due.kind == "timeout":
            raise TimeoutError
        raise self._trouble(due)

    def reset(self, shared_seed: int | None = None) -> None:
        """Begin a new epoch with the same workers; what is unanswered is dropped."""
        workers = self._program.workers
        self._epoch += 1
        self._seed = shared_seed or 0
        self._asked = [0] * workers
        self._aside.clear()
        self._scheduler.reset([(0,)] * workers, 0, [False] * workers)

    def kill(self, worker: int, signal_number: int = signal.SIGKILL) -> None:
        """End a worker's process; a launcher's by SIGKILL, whatever is asked for."""
        if self._others is not None:
            self._others.kill(worker, signal_number)
        else:
            self._scheduler.kill(worker)

    def name_of(self, worker: int) -> str:
        """The name of a worker's process."""
        name = self._others and self._others.name_of(worker)
        return name or f"GristmillWorker-{worker}"

    def process_of(self, worker: int) -> tuple[int, bool, int | None]:
        """Pid of a worker's process, whether it is alive, how it ended."""
        return self._scheduler.processes()[worker]

    def close(self) -> None:
        """End the workers.  Batches that were given stay valid."""
        self.closed = True
        self._scheduler.close()
        if self._others is not None:
            self._others.close()
        self._aside.clear()

    def _send(self, worker: int, request: Any) -> None:
        words = requests.packed(request)
        place = self._aside.put(worker, words, self._program.vector_capacity)
        if len(place):
            words = requests.packed(requests.ElsewhereAt(place))
        self._scheduler.ask(worker, words)

    def _answer(self, due: _core.Due) -> Answer:
        element, _ = remote.received(self._scheduler, due)
        worker = due.stream
        if due.error:
            answer = Answer(worker, failure=failures.unpack_failure(element))
        else:
            value, state = sending.received(element), None
            if self._program.stateful:
                value, state = value
            if isinstance(value, ExceptionWrapper):
                answer = Answer(worker, failure=value, state=state)
            elif isinstance(value, Exhausted):
                answer = Answer(worker, exhausted=True, state=state)
            else:
                answer = Answer(worker, value, state=state)
        self._scheduler.advance()
        self._aside.answered(worker)
        return answer

    def _trouble(self, due: _core.Due) -> Exception:
        if due.kind == "full":
            return remote.too_full(due, "A batch", "batches", "clone")
        if due.kind == "exited":
            return _death(due)
        return remote.gone(self._owner)


class WorkerProcess:
    """Looks like the `multiprocessing.Process` of a worker."""

    daemon = True

    def __init__(self, crew: Crew, worker: int) -> None:
        self._crew = crew
        self._worker = worker

    @property
    def name(self) -> str:
        """That which the worker's own code sees."""
        return self._crew.name_of(self._worker)

    @property
    def pid(self) -> int | None:
        """Its number; waits until it has started."""
        never = threading.Event()
        for _ in range(int(_BIRTH_S / _STEP_S)):
            pid = self._look()[0]
            if pid:
                return pid
            never.wait(_STEP_S)
        return None

    ident = pid

    @property
    def exitcode(self) -> int | None:
        """As `multiprocessing.Process.exitcode`; 0 of one that was told to stop."""
        if self.is_alive():
            return None
        status = self._look()[2]
        return 0 if status is None else os.waitstatus_to_exitcode(status)

    def is_alive(self) -> bool:
        """Whether it runs, or is about to."""
        pid, alive, _ = self._look()
        return not self._crew.closed and (alive or not pid)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, for so many seconds at most."""
        pid = self._look()[0]
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                select.select([pidfd], [], [], timeout)
            finally:
                os.close(pidfd)

    def terminate(self) -> None:
        """End it with SIGTERM, or SIGKILL where it leaves that to its parent."""
        self._crew.kill(self._worker, signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._crew.kill(self._worker)

    def _look(self) -> tuple[int, bool, int | None]:
        return self._crew.process_of(self._worker)


def _death(due: _core.Due) -> Exception:
    """Torch's words for the death of a worker."""
    if due.at_start:
        text = due.text.strip() or "They ended before they began to work."
        return WorkerDied(
            f"DataLoader workers cannot start. The last one said:\n{text}\n"
            "Rerunning with num_workers=0 may give better error trace."
        )
    error = WorkerDied(f"DataLoader worker (pid(s) {due.pid}) exited unexpectedly")
    error.__cause__ = RuntimeError(f"DataLoader worker (pid {due.pid}) {_ending(due)}")
    return error


def _ending(due: _core.Due) -> str:
    status = due.wait_status
    code = None if status is None else os.waitstatus_to_exitcode(status)
    if code is None or code >= 0:
        return (
            f"exited unexpectedly with exit code {code}. Details are lost due to"
            " multiprocessing. Rerunning with num_workers=0 may give better error"
            " trace."
        )
    text = f"is killed by signal: {signal.strsignal(-code)}. "
    if -code == signal.SIGBUS:
        text += (
            "It is possible that dataloader's workers are out of shared memory. "
            "Please try to raise your shared memory limit."
        )
    return text
