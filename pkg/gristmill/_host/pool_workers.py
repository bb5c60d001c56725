"""The workers of a pool, from the view of its server."""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable
from typing import Any, Protocol

from gristmill import _core
from gristmill._host import messages
from gristmill._host.units import Unit
from gristmill._host.zygote import PoolZygote
from gristmill._workers.processes import fork

# The pool fails after this many workers in a row ended before their first unit.
MAX_FAILED_STARTS = 3
# The size of the first slots.
FIRST_SLOT_BYTES = 1 << 20


class PoolEvents(Protocol):
    """The methods of the server that its workers call."""

    def on_ready(self) -> None:
        """Handle that the program was loaded."""

    def on_failed(self, reason: str) -> None:
        """Handle that no worker can run."""

    def on_computed(self, unit: Unit) -> None:
        """Handle that a unit was computed."""

    def on_lost(self, unit: Unit, reason: str) -> None:
        """Handle that the worker of a unit was lost."""


class PoolWorker:
    """A worker, or one that has been requested from the zygote.

    Attributes:
        number: Its number.
        connection: The socket to it.
        pid: Its process; 0 until it has started.
        unit: The unit that it computes, or None.
        programs: The keys of the programs that it has.
        streams: The owned streams whose units it computes: the keys of programs, and
            numbers.
        retires: Whether it ends after its unit.
        end_reason: The reason why it was killed; empty if it was not.
        has_computed: Whether it has computed a unit.
    """

    def __init__(self, number: int, connection: socket.socket) -> None:
        self.number = number
        self.connection = connection
        self.pid = 0
        self.unit: Unit | None = None
        self.programs: set[str] = set()
        self.streams: set[tuple[str, int]] = set()
        self.retires = False
        self.end_reason = ""
        self.has_computed = False

    def kill(self, reason: str) -> None:
        """Kill the process; the zygote will report its end."""
        self.end_reason = reason
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)


class PoolWorkers:
    """Starts workers, replaces lost ones, and gives them units.

    Args:
        selector: The selector of the server; its values are functions to call.
        arena: The memory for units.
        state: The state of the rank that started the pool; see `parent.setup`.
        program_fd: The file with the base program.
        events: The server.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        arena: _core.Arena,
        state: dict[str, Any],
        program_fd: int,
        events: PoolEvents,
    ) -> None:
        self.arena = arena
        self.is_ready = False
        self._selector = selector
        self._state = state
        self._program_fd = program_fd
        self._events = events
        self._count = 0
        self._cores: frozenset[int] = frozenset()
        self._workers: dict[int, PoolWorker] = {}
        # The worker that computes each owned stream: the key of a program, a number.
        self._owners: dict[tuple[str, int], PoolWorker] = {}
        # The largest slot that each program has needed.
        self._slot_bytes: dict[str, int] = {}
        self._failed_starts = 0
        self._loads_in_workers = False
        self._zygote: socket.socket
        self._start_zygote()

    def resize(self, count: int, cores: frozenset[int]) -> None:
        """Run `count` workers on the given cores."""
        self._cores = cores
        self._count = count
        for worker in [*self._workers.values()][count:]:
            worker.retires = True
            self._retire_if_idle(worker)
        self._start_missing()

    def choose(self, unit: Unit) -> PoolWorker | None:
        """Return an idle worker that may compute a unit, or None."""
        idle = [
            worker
            for worker in self._workers.values()
            if worker.pid and worker.unit is None and not worker.retires
        ]
        if not idle:
            return None
        if not unit.task.owned:
            return idle[0]
        stream = unit.program, unit.task.stream
        owner = self._owners.get(stream)
        if owner is None:
            # A busy worker may own fewer streams, but an idle one can start now.
            owner = min(idle, key=lambda worker: len(worker.streams))
            self._owners[stream] = owner
            owner.streams.add(stream)
        return owner if owner in idle else None

    def compute(self, worker: PoolWorker, unit: Unit, program: bytes) -> bool:
        """Have a worker compute a unit; return False if the memory is full.

        Args:
            worker: An idle worker.
            unit: The unit.
            program: The pickled rest of its program.
        """
        nbytes = self._slot_bytes.get(unit.program, FIRST_SLOT_BYTES)
        # Without a unit in progress, no memory may ever be returned.
        is_only = all(one.unit is None for one in self._workers.values())
        slot = self.arena.take(nbytes, is_only)
        if slot is None:
            return False
        offset, capacity = slot
        unit.slot, unit.worker, worker.unit = offset, worker, unit
        try:
            if unit.program not in worker.programs:
                worker.programs.add(unit.program)
                messages.send(worker.connection, ("program", unit.program, program))
            messages.send(
                worker.connection,
                ("unit", unit.program, tuple(unit.task), offset, capacity),
            )
        except OSError:
            pass  # The zygote will report that the worker has ended.
        return True

    def _start_zygote(self) -> None:
        ours, theirs = messages.new_pair()
        listening = [*self._selector.get_map()]

        def run() -> None:
            # The copies of the server's descriptors would keep connections open.
            for fd in listening:
                os.close(fd)
            ours.close()
            PoolZygote(
                theirs,
                self._state,
                self._program_fd,
                (self.arena.fd, self.arena.bytes),
                loads_in_workers=self._loads_in_workers,
            ).run()

        fork(run)
        theirs.close()
        self._zygote = ours
        self._watch(ours, self._hear_zygote)

    def _watch(self, source: socket.socket, handle: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handle)

    def _hear_zygote(self) -> None:
        received = messages.receive(self._zygote)
        if received is None:
            self._replace_zygote()
            return
        (kind, *details), _ = received
        if kind == "ready":
            self.is_ready = True
            self._start_missing()
            self._events.on_ready()
        elif kind == "threads":
            self._loads_in_workers = True
            self._replace_zygote()
        elif kind == "failed":
            self._failed_starts = MAX_FAILED_STARTS
            self._events.on_failed(f"The pool cannot load the loader:\n{details[0]}")
        elif kind == "started":
            number, pid = details
            if worker := self._workers.get(number):
                worker.pid = pid
        else:
            number, pid, status = details
            worker = self._workers.get(number)
            if worker is not None and worker.pid == pid:
                self._remove(worker, _end_text(status))
                self._start_missing()

    def _replace_zygote(self) -> None:
        """Start another zygote, because this one has ended, with its workers."""
        self._selector.unregister(self._zygote)
        self._zygote.close()
        self.is_ready = False
        for worker in [*self._workers.values()]:
            self._remove(worker, "The process that had started it has ended.")
        if self._failed_starts < MAX_FAILED_STARTS:
            self._failed_starts += not self._loads_in_workers
            self._start_zygote()

    def _start_missing(self) -> None:
        while self.is_ready and len(self._workers) < self._count:
            number = min(set(range(self._count)) - set(self._workers))
            ours, theirs = messages.new_pair()
            worker = self._workers[number] = PoolWorker(number, ours)
            self._watch(ours, lambda worker=worker: self._hear(worker))
            message = "start", number, self._count, self._cores
            messages.send(self._zygote, message, theirs.fileno())
            theirs.close()

    def _hear(self, worker: PoolWorker) -> None:
        """Handle a message of a worker."""
        received = messages.receive(worker.connection)
        if received is None:
            # The zygote will report the reason.
            self._selector.unregister(worker.connection)
            return
        (kind, *details), _ = received
        unit = worker.unit
        if kind == "failed":
            self._events.on_failed(f"A worker of the pool failed:\n{details[0]}")
            return
        assert unit is not None
        if kind == "larger":
            self.arena.give_back(unit.slot)
            slot = self.arena.take(details[0], True)
            assert slot is not None
            unit.slot = slot[0]
            messages.send(worker.connection, ("slot", *slot))
            return
        used, result, ready_s = details
        self._slot_bytes[unit.program] = max(
            used, self._slot_bytes.get(unit.program, 0)
        )
        self.arena.charge_populated(unit.slot, used)
        worker.unit = unit.worker = None
        worker.has_computed = True
        self._failed_starts = 0
        unit.result = used, result, worker.pid, ready_s
        self._events.on_computed(unit)
        self._retire_if_idle(worker)

    def _retire_if_idle(self, worker: PoolWorker) -> None:
        if worker.retires and worker.unit is None:
            self._remove(worker, "")

    def _remove(self, worker: PoolWorker, reason: str) -> None:
        """Remove a worker that has ended or should end."""
        del self._workers[worker.number]
        if worker.connection in self._selector.get_map():
            self._selector.unregister(worker.connection)
        worker.connection.close()
        for stream in worker.streams:
            del self._owners[stream]
        unit, worker.unit = worker.unit, None
        if unit is not None:
            unit.worker = None
            text = f"process {worker.pid} of the pool: {worker.end_reason or reason}"
            self._events.on_lost(unit, text)
        elif reason and not worker.has_computed:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                self._events.on_failed(f"The workers of the pool end: {reason}")


def _end_text(status: int) -> str:
    """Return the text for a wait status."""
    if os.WIFSIGNALED(status):
        return f"It was killed by {signal.Signals(os.WTERMSIG(status)).name}."
    return f"It ended with exit code {os.waitstatus_to_exitcode(status)}."
