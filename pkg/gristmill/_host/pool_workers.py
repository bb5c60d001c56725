"""The workers of a pool, from the view of its server."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import selectors
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gristmill import _core
from gristmill._base import host_limits
from gristmill._host import messages
from gristmill._host.units import Unit
from gristmill._host.zygote import LEAVE_S, PoolZygote
from gristmill._workers.processes import fork

# The pool fails after this many processes in a row ended before they computed a unit.
MAX_FAILED_STARTS = 3
# The size of the first slots.
FIRST_SLOT_BYTES = 1 << 20
# Beyond the limit, units are computed while the machine has this much memory left.
RESERVE_BYTES = 128 << 20


class PoolEvents(Protocol):
    """The methods of the server that its workers call."""

    def on_ready(self) -> None:
        """Handle that the program was loaded."""

    def on_failed(self, reason: str) -> None:
        """Handle that no worker can run."""

    def on_computed(self, unit: Unit) -> None:
        """Handle that a unit was computed."""

    def on_lost(self, unit: Unit, worker: str, reason: str, blamed: bool) -> None:
        """Handle that the worker of a unit was lost, perhaps because of the unit."""


class PoolWorker:
    """A worker, or one that has been requested from the zygote.

    Attributes:
        number: Its number.
        serial: The count of workers that were requested before it.
        connection: The socket to it.
        pid: Its process; 0 until it has started.
        pidfd: The descriptor of the process; -1 until it has started.
        unit: The unit that it computes, or None.
        programs: The keys of the programs that it has.
        streams: The owned streams whose units it computes: the keys of programs, and
            numbers.
        retires: Whether it ends after its unit.
        end_reason: The reason why it was killed; empty if it was not.
        has_computed: Whether it has computed a unit.
    """

    def __init__(self, number: int, serial: int, connection: socket.socket) -> None:
        self.number = number
        self.serial = serial
        self.connection = connection
        self.pid = 0
        self.pidfd = -1
        self.unit: Unit | None = None
        self.programs: set[str] = set()
        self.streams: set[tuple[str, int]] = set()
        self.retires = False
        self.end_reason = ""
        self.has_computed = False

    def kill(self, reason: str) -> None:
        """Kill the process; the zygote will report its end."""
        self.end_reason = reason
        if self.pidfd >= 0:
            _kill(self.pidfd)


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
        self._next_serial = 0
        # The worker that computes each owned stream: the key of a program, a number.
        self._owners: dict[tuple[str, int], PoolWorker] = {}
        # The largest slot that was needed.
        self._slot_bytes = FIRST_SLOT_BYTES
        self._failed_starts = 0
        self._loads_in_workers = False
        # The socket to the zygote, its pid and its pidfd.
        self._zygote: socket.socket
        self._zygote_pid = self._zygote_pidfd = -1
        self._start_zygote()

    def resize(self, count: int, cores: frozenset[int]) -> None:
        """Run `count` workers on the given cores."""
        self._cores = cores
        self._count = count
        for worker in [*self._workers.values()]:
            worker.retires = worker.number >= count
            self._retire_if_idle(worker)
        self._start_missing()

    def close(self) -> None:
        """End the workers, after they have closed their streams."""
        for worker in self._workers.values():
            worker.connection.close()
        self._zygote.close()
        if self._zygote_pidfd >= 0:
            _await_end(self._zygote_pidfd, 2 * LEAVE_S)
            _kill(self._zygote_pidfd)

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

    def compute(
        self, worker: PoolWorker, unit: Unit, programs: Mapping[str, bytes]
    ) -> bool:
        """Have a worker compute a unit; return False if the memory is full.

        Args:
            worker: An idle worker.
            unit: The unit.
            programs: The pickled rests of all programs in use, by key.
        """
        # Without a unit in progress, no memory may ever be returned.
        is_only = all(one.unit is None for one in self._workers.values())
        slot = self.arena.take(self._slot_bytes)
        if slot is None and not is_only:
            return False
        offset, capacity = slot or self._take_beyond_limit(self._slot_bytes)
        unit.slot, unit.worker, worker.unit = offset, worker, unit
        numbers = unit.number, offset, capacity
        task = "unit", unit.program, tuple(unit.task), *numbers
        # Otherwise, the zygote will report that the worker has ended.
        with contextlib.suppress(OSError):
            for program in worker.programs - programs.keys():
                messages.send(worker.connection, ("drop", program))
                self._drop_program(worker, program)
            if unit.program not in worker.programs:
                worker.programs.add(unit.program)
                packed = programs[unit.program]
                messages.send(worker.connection, ("program", unit.program, packed))
            messages.send(worker.connection, task)
        return True

    def _take_beyond_limit(self, nbytes: int) -> tuple[int, int]:
        """Return a slot although the limit is reached; offset -1 without memory."""
        if host_limits.available_memory() < nbytes + RESERVE_BYTES:
            return self.arena.take(nbytes) or (-1, 0)
        return self.arena.take(nbytes, True) or (-1, 0)

    def _drop_program(self, worker: PoolWorker, program: str) -> None:
        worker.programs.discard(program)
        for stream in [one for one in worker.streams if one[0] == program]:
            worker.streams.discard(stream)
            del self._owners[stream]

    # The zygote.

    def _start_zygote(self) -> None:
        ours, theirs = messages.new_pair()
        server_fds = [key.fd for key in self._selector.get_map().values()]
        if isinstance(self._selector, selectors.EpollSelector):
            server_fds.append(self._selector.fileno())

        def run() -> None:
            # The copies of the server's descriptors would keep connections open.
            for fd in server_fds:
                os.close(fd)
            ours.close()
            PoolZygote(
                theirs,
                self._state,
                self._program_fd,
                (self.arena.fd, self.arena.bytes),
                loads_in_workers=self._loads_in_workers,
            ).run()

        self._zygote_pid, self._zygote_pidfd = fork(run)
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
        (kind, *details), fds = received
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
            worker = self._worker_with(*details[:2])
            if worker is None:
                os.close(fds[0])
            else:
                worker.pid, worker.pidfd = details[2], fds[0]
        elif worker := self._worker_with(*details[:2]):
            reason = _end_text(details[2])
            is_failed_start = worker.unit is None and not worker.has_computed
            self._remove(worker, reason)
            if is_failed_start:
                self._count_failed_start(reason)
            self._start_missing()

    def _worker_with(self, number: int, serial: int) -> PoolWorker | None:
        """Return a worker; None if another one has its number now."""
        worker = self._workers.get(number)
        return worker if worker is not None and worker.serial == serial else None

    def _replace_zygote(self) -> None:
        """Start another zygote in place of this one, which has ended or will."""
        self._selector.unregister(self._zygote)
        self._zygote.close()
        self.is_ready = False
        _kill(self._zygote_pidfd)
        status = os.waitpid(self._zygote_pid, 0)[1]
        os.close(self._zygote_pidfd)
        self._zygote_pidfd = -1
        for worker in [*self._workers.values()]:
            if worker.pidfd >= 0:  # Wait until it no longer writes to its slot.
                _kill(worker.pidfd)
                _await_end(worker.pidfd)
            reason = "The process that had started it has ended."
            self._remove(worker, reason, blames_unit=False)
        if not self._loads_in_workers:
            self._count_failed_start(_end_text(status))
        if self._failed_starts < MAX_FAILED_STARTS:
            self._start_zygote()

    def _count_failed_start(self, reason: str) -> None:
        self._failed_starts += 1
        if self._failed_starts == MAX_FAILED_STARTS:
            self._events.on_failed(
                f"The pool gives up after {MAX_FAILED_STARTS} processes in a row ended"
                f" before they computed anything. The last one: {reason}"
            )

    # The workers.

    def _start_missing(self) -> None:
        if not self.is_ready:
            return
        for number in sorted(set(range(self._count)) - set(self._workers)):
            ours, theirs = messages.new_pair()
            worker = PoolWorker(number, self._next_serial, ours)
            self._next_serial += 1
            self._workers[number] = worker
            self._watch(ours, functools.partial(self._hear, worker))
            message = number, worker.serial, self._count, self._cores
            # Otherwise, the zygote has ended, and another one will start it.
            with theirs, contextlib.suppress(OSError):
                messages.send(self._zygote, message, theirs.fileno())

    def _hear(self, worker: PoolWorker) -> None:
        """Handle a message of a worker."""
        received = messages.receive(worker.connection)
        if received is None:
            # The zygote will report the reason.
            self._selector.unregister(worker.connection)
            worker.retires = True  # So that it gets no unit, which would be blamed.
            return
        (kind, *details), _ = received
        unit = worker.unit
        if kind == "failed":
            self._events.on_failed(f"A worker of the pool failed:\n{details[0]}")
            return
        assert unit is not None
        if kind == "larger":
            if unit.slot >= 0:
                self.arena.give_back(unit.slot)
            slot = self._take_beyond_limit(details[0])
            unit.slot = slot[0]
            messages.try_send(worker.connection, ("slot", *slot))
            return
        used, unit.result = details
        self._slot_bytes = max(used, self._slot_bytes)
        if unit.slot >= 0:
            self.arena.charge_populated(unit.slot, used)
        worker.unit = unit.worker = None
        worker.has_computed = True
        self._failed_starts = 0
        self._events.on_computed(unit)
        self._retire_if_idle(worker)

    def _retire_if_idle(self, worker: PoolWorker) -> None:
        if worker.retires and worker.unit is None:
            self._remove(worker, "")
            self._start_missing()

    def _remove(
        self, worker: PoolWorker, reason: str, *, blames_unit: bool = True
    ) -> None:
        """Remove a worker that has ended, or that is idle and should end."""
        del self._workers[worker.number]
        if worker.connection in self._selector.get_map():
            self._selector.unregister(worker.connection)
        worker.connection.close()
        if worker.pidfd >= 0:
            os.close(worker.pidfd)
        for stream in worker.streams:
            del self._owners[stream]
        unit, worker.unit = worker.unit, None
        if unit is not None:
            unit.worker = None
            name = f"process {worker.pid} of the pool"
            reason = worker.end_reason or reason
            self._events.on_lost(unit, name, reason, blames_unit)


def _await_end(pidfd: int, timeout_s: float | None = None) -> None:
    """Wait until a process has ended.  `select` takes descriptors below 1024 only."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(None if timeout_s is None else timeout_s * 1e3)


def _kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _end_text(status: int) -> str:
    """Return the text for a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)  # Most real-time signals have no name.
        names = {known.value: known.name for known in signal.Signals}
        return f"It was killed by {names.get(number, f'signal {number}')}."
    return f"It ended with exit code {os.waitstatus_to_exitcode(status)}."
