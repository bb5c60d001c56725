"""The server of a pool: hands units to workers, and results to ranks.

One process, which belongs to no rank, with one thread.  The rank that found no server
starts it, detached.  It ends when the last rank has left, and its workers end with it.
Each rank has one connection for itself, and one for each of its lanes; a lane waits for
one unit at a time.
"""

from __future__ import annotations

import dataclasses
import os
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from gristmill import _core
from gristmill._host import messages
from gristmill._host.address import Address, peer_of
from gristmill._host.joining import Joining, describe_conflict, describe_difference
from gristmill._host.mode import Mode
from gristmill._host.pool_workers import PoolWorker, PoolWorkers
from gristmill._host.units import Unit, Units
from gristmill._pool.unit_task import UnitTask

# The server waits this long for the first rank, in s.
FIRST_RANK_S = 60.0
# After the last rank has left, the server waits this long for the next epoch, in s.
# It does not wait if the last rank was killed.
LINGER_S = 2.0
# A rank whose requests wait this long gets a message that names the slow ranks, in s.
SLOW_S = 10.0
TICK_S = 0.5


@dataclasses.dataclass(eq=False)
class _Job:
    """A rank that has connected.

    Attributes:
        joining: Its first message.
        connection: Its connection.
        pidfd: Readable when its process has ended; -1 if there is none.
        lanes: Its lanes.
    """

    joining: Joining
    connection: socket.socket
    pidfd: int
    lanes: list[_Lane] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class _Lane:
    """A lane of a rank.

    Attributes:
        rank: The number of the rank.
        number: The number of the lane within the rank.
        program: The key of the program whose units it requests.
        connection: Its connection.
        request: The task that it waits for, or None.
        waits_since_s: The time since which its request waits for slow ranks, by
            `time.monotonic`; None if it does not.
    """

    rank: int
    number: int
    program: str
    connection: socket.socket
    request: UnitTask | None = None
    waits_since_s: float | None = None


class Server:
    """Serves ranks until the last one has left.

    Args:
        address: The address of the pool.
        listener: The socket that listens there.
        state: The state of the rank that started the pool; see `parent.setup`.
    """

    def __init__(
        self, address: Address, listener: socket.socket, state: dict[str, Any]
    ) -> None:
        self._address = address
        self._listener = listener
        self._state = {**state, "pid": os.getpid()}
        self._selector = selectors.DefaultSelector()
        self._watch(listener, self._accept)
        # The ranks that have connected, by number.
        self._jobs: dict[int, _Job] = {}
        # The pickled rests of the ranks' programs, by key.
        self._programs: dict[str, bytes] = {}
        # The first rank's message, which the others have to match.
        self._first: Joining | None = None
        self._workers: PoolWorkers | None = None
        self._units = Units(0, 1, self._free)
        # The reason why no unit will be computed; empty if there is none.
        self._failure = ""
        # The time at which the server ends if no rank joins.
        self._end_s = time.monotonic() + FIRST_RANK_S

    def run(self) -> None:
        """Serve until the last rank has left."""
        last_tick_s = time.monotonic()
        while self._jobs or time.monotonic() < self._end_s:
            for key, _ in self._selector.select(TICK_S):
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            self._dispatch()
            if time.monotonic() - last_tick_s > TICK_S:
                last_tick_s = time.monotonic()
                self._report_slow_ranks()

    # Connections.

    def _watch(self, source: Any, handle: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handle)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        pid, user = peer_of(connection)
        if user != os.getuid():
            connection.close()
            return
        self._watch(connection, lambda: self._greet(connection, pid))

    def _greet(self, connection: socket.socket, pid: int) -> None:
        """Handle the first message of a connection."""
        self._selector.unregister(connection)
        received = messages.receive(connection)
        if received is None:
            connection.close()
            return
        (kind, *details), _ = received
        if kind == "join":
            self._join(connection, Joining(*details[0]), pid)
        else:
            self._open_lane(connection, *details)

    def _join(self, connection: socket.socket, joining: Joining, pid: int) -> None:
        """Add a rank, or refuse it."""
        first = self._first
        before = self._jobs.get(joining.rank)
        refusal = self._failure
        if first is not None and not refusal:
            refusal = describe_difference(self._address.name, first, joining)
            refusal = refusal or describe_conflict(
                self._address.name, before and before.joining, joining
            )
        if refusal:
            messages.send(connection, ("refused", refusal))
            connection.close()
            return
        if before is not None:
            self._leave(before)  # Its process has a newer iterator.
        pidfd = -1
        try:
            if pid == joining.pid:  # Otherwise it has another namespace of pids.
                pidfd = os.pidfd_open(pid)
        except OSError:
            connection.close()
            return
        job = self._jobs[joining.rank] = _Job(joining, connection, pidfd)
        self._watch(connection, lambda: self._hear(job))
        if pidfd >= 0:
            self._watch(pidfd, lambda: self._leave(job))
        if first is None:
            self._first = joining
            ranks = joining.ranks if joining.mode is Mode.BROADCAST else 0
            self._units = Units(ranks, joining.ahead, self._free)
            self._send(job, ("load",))
            return
        self._units.join(joining.rank)
        if self._workers is not None:
            self._adjust_workers()
            if self._workers.is_ready:
                self._welcome(job)

    def _hear(self, job: _Job) -> None:
        """Handle a message of a rank that has joined."""
        received = messages.receive(job.connection)
        if received is None:
            self._leave(job)
            return
        (kind, *details), fds = received
        if kind == "release":
            self._units.release(details[0], job.joining.rank)
        elif kind == "program":
            self._load(fds[0])
        elif kind == "resize":
            job.joining = job.joining._replace(workers=details[0])
            self._adjust_workers()
        elif kind == "activity":
            self._send(job, ("activity", self._activity(job, details[0])))
        elif kind == "kill":
            if worker := self._worker_for(job, details[0]):
                worker.kill("it did not answer, so it was ended")
        elif kind == "leave":
            self._leave(job, linger_s=LINGER_S)

    def _send(self, job: _Job, message: messages.Message, *fds: int) -> None:
        try:
            messages.send(job.connection, message, *fds)
        except OSError:
            self._leave(job)

    def _leave(self, job: _Job, linger_s: float = 0.0) -> None:
        """Remove a rank that has left, or has ended."""
        rank = job.joining.rank
        if self._jobs.get(rank) is not job:
            return
        del self._jobs[rank]
        self._selector.unregister(job.connection)
        job.connection.close()
        if job.pidfd >= 0:
            self._selector.unregister(job.pidfd)
            os.close(job.pidfd)
        for lane in [*job.lanes]:
            self._close_lane(job, lane)
        self._units.leave(rank)
        self._end_s = time.monotonic() + linger_s
        if self._workers is None and self._first is not None:
            # The rank that should have sent the program is gone: another one sends it.
            if self._first.rank == rank and self._jobs:
                other = next(iter(self._jobs.values()))
                self._first = other.joining
                self._send(other, ("load",))
            elif not self._jobs:
                self._first = None
        elif self._jobs:
            self._adjust_workers()

    # The program and the workers.

    def _load(self, program_fd: int) -> None:
        """Start the workers of the program in a file."""
        assert self._first is not None
        if self._workers is not None:
            os.close(program_fd)
            return
        arena = _core.Arena(self._first.memory_limit)
        self._workers = PoolWorkers(
            self._selector, arena, self._state, program_fd, self
        )
        self._adjust_workers()

    def on_ready(self) -> None:
        """Welcome the ranks that waited for the program."""
        for job in [*self._jobs.values()]:
            self._welcome(job)

    def on_failed(self, reason: str) -> None:
        """Refuse all ranks, because the workers cannot run."""
        self._failure = reason
        for job in [*self._jobs.values()]:
            self._send(job, ("refused", reason))
            self._leave(job)

    def on_lost(self, unit: Unit, reason: str) -> None:
        """Report to the lanes of a unit that its worker was lost."""
        lanes, unit.lanes = unit.lanes, []
        self._units.remove(unit)
        for number, lane in enumerate(lanes):
            # The first lane counts the loss, so the others must not.
            self._reply(lane, ("lost", reason, number == 0))

    def _welcome(self, job: _Job) -> None:
        assert self._workers is not None
        arena = self._workers.arena
        self._send(job, ("joined", arena.bytes), arena.fd)

    def _adjust_workers(self) -> None:
        """Run as many workers as the rank that needs most, on the cores of all."""
        if self._workers is not None and self._jobs:
            jobs = [job.joining for job in self._jobs.values()]
            cores = frozenset[int]().union(*(job.cores for job in jobs))
            self._workers.resize(max(job.workers for job in jobs), cores)

    # Lanes and units.

    def _open_lane(
        self,
        connection: socket.socket,
        rank: int,
        pid: int,
        number: int,
        program: str,
        packed: bytes,
    ) -> None:
        job = self._jobs.get(rank)
        if job is None or job.joining.pid != pid:
            connection.close()
            return
        self._programs.setdefault(program, packed)
        lane = _Lane(rank, number, program, connection)
        job.lanes.append(lane)
        self._watch(connection, lambda: self._hear_lane(job, lane))

    def _hear_lane(self, job: _Job, lane: _Lane) -> None:
        received = messages.receive(lane.connection)
        if received is None:
            self._close_lane(job, lane)
            return
        (task,), _ = received
        lane.request = UnitTask(*task)
        lane.waits_since_s = None
        self._handle_request(lane)

    def _close_lane(self, job: _Job, lane: _Lane) -> None:
        if lane not in job.lanes:
            return
        job.lanes.remove(lane)
        self._selector.unregister(lane.connection)
        lane.connection.close()
        for unit in self._units.waited_for(lane):
            unit.lanes.remove(lane)
            self._units.remove_unused(unit)

    def _handle_request(self, lane: _Lane) -> None:
        """Queue the request of a lane, unless it has to wait for slow ranks."""
        task = lane.request
        assert task is not None
        key = lane.program, task._replace(attempt=0)
        unit = self._units.find(key, lane.rank)
        if unit is None:
            if self._units.blocking_ranks(lane.rank, self._waiting_ranks()):
                lane.waits_since_s = lane.waits_since_s or time.monotonic()
                return
            unit = self._units.add(key, task, lane.rank)
        lane.waits_since_s = None
        lane.request = None
        self._units.take(unit, lane)
        if unit.result is not None:
            self._deliver(unit)

    def _waiting_lanes(self) -> list[_Lane]:
        return [
            lane
            for job in self._jobs.values()
            for lane in job.lanes
            if lane.waits_since_s is not None
        ]

    def _waiting_ranks(self) -> set[int]:
        return {lane.rank for lane in self._waiting_lanes()}

    def _dispatch(self) -> None:
        """Give queued units to idle workers."""
        for lane in self._waiting_lanes():
            self._handle_request(lane)
        workers = self._workers
        if workers is None:
            return
        for unit in [*self._units.queue]:
            worker = workers.choose(unit)
            if worker is None:
                continue
            if not workers.compute(worker, unit, self._programs[unit.program]):
                return  # The memory is full.
            self._units.queue.remove(unit)

    def on_computed(self, unit: Unit) -> None:
        """Deliver a unit, or drop it if no rank needs it anymore."""
        if unit.is_unused:
            self._free(unit)
        else:
            self._deliver(unit)

    def _deliver(self, unit: Unit) -> None:
        """Send a computed unit to the lanes that wait for it."""
        assert unit.result is not None
        lanes, unit.lanes = unit.lanes, []
        for lane in lanes:
            unit.holders.add(lane.rank)
        for lane in lanes:
            self._reply(lane, ("computed", unit.number, unit.slot, *unit.result))

    def _reply(self, lane: _Lane, message: messages.Message) -> None:
        job = self._jobs.get(lane.rank)
        if job is None or lane not in job.lanes:
            return
        try:
            messages.send(lane.connection, message)
        except OSError:
            self._close_lane(job, lane)

    def _free(self, unit: Unit) -> None:
        """Reuse the memory of a unit; later if a worker writes to it now."""
        if self._workers is not None and unit.worker is None and unit.slot >= 0:
            self._workers.arena.give_back(unit.slot)
            unit.slot = -1

    def _worker_for(self, job: _Job, lane_number: int) -> PoolWorker | None:
        """Return the worker that computes the unit that a lane waits for."""
        for lane in job.lanes:
            if lane.number == lane_number:
                for unit in self._units.waited_for(lane):
                    worker: PoolWorker | None = unit.worker
                    return worker
        return None

    def _activity(self, job: _Job, lane_number: int) -> str:
        """Return a sentence about what a lane waits for."""
        name = self._address.name
        worker = self._worker_for(job, lane_number)
        if worker is None:
            return f"It waits for a worker of the pool {name!r}."
        return f"It waits for process {worker.pid} of the pool {name!r}."

    def _report_slow_ranks(self) -> None:
        """Tell the lanes that have waited long which ranks they wait for."""
        now = time.monotonic()
        for lane in self._waiting_lanes():
            assert lane.waits_since_s is not None
            slow = self._units.blocking_ranks(lane.rank, self._waiting_ranks())
            if slow and now - lane.waits_since_s > SLOW_S:
                lane.waits_since_s = now
                self._reply(lane, ("slow", sorted(slow), sorted(self._jobs)))
