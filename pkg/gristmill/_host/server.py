"""The server of a pool: hands units to workers, and results to ranks.

One process, which belongs to no rank, with one thread.  The rank that found no server
starts it, detached.  It ends when the last rank has left, and its workers end with it.
Each rank has a connection for itself, and one for each lane, which awaits one unit.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from gristmill import _core
from gristmill._host import messages
from gristmill._host.address import Address, peer_of
from gristmill._host.jobs import Job, Lane
from gristmill._host.joining import Joining, describe_conflict, describe_difference
from gristmill._host.mode import Mode
from gristmill._host.pool_workers import PoolWorker, PoolWorkers
from gristmill._host.unit_packets import unpack_task
from gristmill._host.units import Unit, Units

# The wait for the next epoch after the last rank has left, unless it was killed, in s.
LINGER_S = 2.0
# A rank whose requests wait this long gets a message that names the slow ranks, in s.
SLOW_S = 10.0
TICK_S = 0.5


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
        # The number of connections without a first message.
        self._guests = 0
        # The ranks that have joined, by rank.
        self._jobs: dict[int, Job] = {}
        # Random, so that a rank does not reach another job of the next server with it.
        self._next_job = secrets.randbits(48)
        # The lanes whose requests wait for slow ranks, and the times since which they
        # wait, by `time.monotonic`.
        self._waiting: dict[Lane, float] = {}
        # The pickled rests of the ranks' programs, by key.
        self._programs: dict[str, bytes] = {}
        # The first rank's message, which the others have to match.
        self._first: Joining | None = None
        self._workers: PoolWorkers | None = None
        self._units = Units(None, 1, self._free)
        # The reason why no unit will be computed; empty before a failure.
        self._failure = ""
        # The time at which the server ends without ranks.  Its starter has connected.
        self._end_s = time.monotonic() + LINGER_S

    def run(self) -> None:
        """Serve until the last rank has left."""
        while self._jobs or self._guests or time.monotonic() < self._end_s:
            is_timed = not self._jobs or bool(self._waiting)
            for key, _ in self._selector.select(TICK_S if is_timed else None):
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            self._dispatch()
            self._report_slow_ranks()
        self._address.remove()
        self._listener.close()  # Now a rank can start another server.
        if self._workers is not None:
            self._workers.close()

    # Connections.

    def _watch(self, source: Any, handle: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, handle)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        pid, user = peer_of(connection)
        if user != os.getuid():
            connection.close()
            return
        self._guests += 1
        self._watch(connection, lambda: self._greet(connection, pid))

    def _greet(self, connection: socket.socket, pid: int) -> None:
        """Handle the first message of a connection."""
        self._guests -= 1
        self._selector.unregister(connection)
        received = messages.receive(connection)
        if received is None:
            connection.close()
            return
        (kind, *details), _ = received
        if kind == "join":
            self._join(connection, Joining(*details[0]), pid)
            return
        number, lane, *rest = details
        job = next((job for job in self._jobs.values() if job.number == number), None)
        if job is not None and kind == "lane":
            self._open_lane(connection, job, lane, *rest)
            return
        if job is not None:
            messages.try_send(connection, (self._activity(job, lane),))
        connection.close()

    def _join(self, connection: socket.socket, joining: Joining, pid: int) -> None:
        """Add a rank, or refuse it."""
        jobs, name, rank = self._jobs, self._address.name, joining.rank
        while (before := jobs.get(rank)) and messages.can_receive(before.connection):
            self._hear(before)  # It may have left.
        first, refusal = self._first, self._failure
        if first is not None and not refusal:
            refusal = describe_difference(name, first, joining)
            if refusal and not self._jobs:  # Another server can serve this loader.
                self._end_s = 0.0
                connection.close()
                return
            if before is not None and not refusal:
                refusal = describe_conflict(name, before.joining, joining)
        if refusal:
            messages.try_send(connection, ("refused", refusal))
            connection.close()
            return
        pidfd = -1
        try:
            if pid == joining.pid:  # Otherwise it has another namespace of pids.
                pidfd = os.pidfd_open(pid)
        except OSError:
            connection.close()
            return
        job = Job(self._next_job, joining, connection, pidfd)
        self._next_job += 1
        self._jobs[job.rank] = job
        self._watch(connection, lambda: self._hear(job))
        if pidfd >= 0:
            self._watch(pidfd, lambda: self._close(job))
        if first is None:
            self._first = joining
            # After the end of another server, some ranks may never join again.
            members = [job.rank] if joining.joins_again else range(joining.ranks)
            shares = joining.mode is Mode.BROADCAST
            self._units = Units(members if shares else None, joining.ahead, self._free)
            self._send(job, ("load",))
            return
        self._units.join(job.rank)
        if self._workers is not None:
            self._adjust_workers()
            if self._workers.is_ready:
                self._welcome(job)

    def _hear(self, job: Job) -> None:
        """Handle a message of a rank that has joined."""
        received = messages.receive(job.connection)
        if received is None:
            self._close(job)
            return
        (kind, *details), fds = received
        if kind == "release":
            self._units.release(details[0], job)
        elif kind == "program":
            self._load(fds[0])
        elif kind == "resize":
            job.joining = job.joining._replace(workers=details[0])
            self._adjust_workers()
        elif kind == "kill":
            if worker := self._worker_for(job, details[0]):
                worker.kill("It did not answer, so it was ended.")
        elif kind == "leave":
            self._leave(job, linger_s=LINGER_S)

    def _send(self, job: Job, message: messages.Message, *fds: int) -> None:
        if not messages.try_send(job.connection, message, *fds):
            self._close(job)

    def _leave(self, job: Job, linger_s: float = 0.0) -> None:
        """Remove a rank.  Its arrays may still view units."""
        if self._jobs.get(job.rank) is not job:
            return
        del self._jobs[job.rank]
        for lane in [*job.lanes]:
            self._close_lane(lane)
        self._units.leave(job.rank)
        self._end_s = time.monotonic() + linger_s
        if self._workers is None and self._first is not None:
            # The rank that should have sent the program is gone: another one sends it.
            if self._first.rank == job.rank and self._jobs:
                other = next(iter(self._jobs.values()))
                self._first = other.joining
                self._send(other, ("load",))
            elif not self._jobs:
                self._first = None
        elif self._jobs:
            self._adjust_workers()

    def _close(self, job: Job) -> None:
        """Remove a rank that has ended, or whose arrays have ended."""
        if job.connection.fileno() < 0:  # An error of sending may close it twice.
            return
        self._selector.unregister(job.connection)
        job.connection.close()
        if job.pidfd >= 0:
            self._selector.unregister(job.pidfd)
            os.close(job.pidfd)
        self._leave(job)
        self._units.release_all(job)

    # The program and the workers.

    def _load(self, program_fd: int) -> None:
        """Start the workers of the program in a file."""
        if self._workers is not None or self._first is None:
            os.close(program_fd)
            return
        try:
            arena = _core.Arena(self._first.memory_limit)
        except Exception as error:
            self.on_failed(f"The pool cannot create its memory: {error}")
            return
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
            for lane in [*job.lanes]:
                self._reply(lane, ("failed", reason))
            self._send(job, ("refused", reason))
            self._leave(job)

    def on_lost(self, unit: Unit, worker: str, reason: str, blamed: bool) -> None:
        """Report to the lanes of a unit that its worker was lost."""
        lanes, unit.lanes = unit.lanes, []
        self._units.remove(unit)
        report = f"{worker} was lost while computing {unit.task}: {reason}"
        for number, lane in enumerate(lanes):
            # The first lane counts the loss, so the others must not.
            self._reply(lane, ("lost", report, blamed and number == 0))

    def _welcome(self, job: Job) -> None:
        assert self._workers is not None
        arena = self._workers.arena
        if not job.is_welcome:
            job.is_welcome = True
            self._send(job, ("joined", job.number, arena.bytes), arena.fd)

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
        job: Job,
        number: int,
        program: str,
        packed: bytes,
    ) -> None:
        self._programs.setdefault(program, packed)
        lane = Lane(job, number, program, connection)
        job.lanes.append(lane)
        self._watch(connection, lambda: self._hear_lane(lane))

    def _hear_lane(self, lane: Lane) -> None:
        received = messages.receive_packet(lane.connection)
        if received is None:
            self._close_lane(lane)
            return
        lane.request = unpack_task(received[0])
        self._handle_request(lane)

    def _close_lane(self, lane: Lane) -> None:
        if lane not in lane.job.lanes:
            return
        lane.job.lanes.remove(lane)
        self._waiting.pop(lane, None)
        self._selector.unregister(lane.connection)
        lane.connection.close()
        for unit in self._units.waited_for(lane):
            unit.lanes.remove(lane)
            self._units.remove_unused(unit)
        used = {lane.program for lane in self._lanes()} | self._units.programs()
        for program in self._programs.keys() - used:
            del self._programs[program]

    def _lanes(self) -> list[Lane]:
        return [lane for job in self._jobs.values() for lane in job.lanes]

    def _handle_request(self, lane: Lane) -> None:
        """Queue the request of a lane, unless it has to wait for slow ranks."""
        task = lane.request
        assert task is not None
        key = lane.program, task._replace(attempt=0)
        unit = self._units.find(key, lane.job)
        if unit is None:
            if self._units.blocking_ranks(lane.rank, self._waiting_ranks()):
                self._waiting.setdefault(lane, time.monotonic())
                return
            unit = self._units.add(key, task, lane.rank)
        self._waiting.pop(lane, None)
        lane.request = None
        self._units.take(unit, lane)
        if unit.result is not None:
            self._deliver(unit)

    def _waiting_ranks(self) -> set[int]:
        return {lane.rank for lane in self._waiting}

    def _dispatch(self) -> None:
        """Give queued units to idle workers."""
        for lane in [*self._waiting]:
            self._handle_request(lane)
        workers = self._workers
        if workers is None:
            return
        for unit in [*self._units.queue]:
            worker = workers.choose(unit)
            if worker is None:
                continue
            if not workers.compute(worker, unit, self._programs):
                return  # The memory is full.
            self._units.queue.remove(unit)

    def on_computed(self, unit: Unit) -> None:
        """Deliver a unit, or drop it if no rank needs it anymore."""
        if unit.is_unused:
            self._units.remove(unit)
        else:
            self._deliver(unit)

    def _deliver(self, unit: Unit) -> None:
        """Send a computed unit to the lanes that wait for it."""
        assert unit.result is not None
        lanes, unit.lanes = unit.lanes, []
        unit.holders.update(lane.job for lane in lanes)
        for lane in lanes:
            if not messages.try_send_packet(lane.connection, unit.result):
                self._close_lane(lane)
                self._units.release(unit.number, lane.job)

    def _reply(self, lane: Lane, message: messages.Message) -> None:
        if not messages.try_send(lane.connection, message):
            self._close_lane(lane)

    def _free(self, unit: Unit) -> None:
        """Reuse the memory of a unit; later if a worker writes to it now."""
        if self._workers is not None and unit.worker is None and unit.slot >= 0:
            self._workers.arena.give_back(unit.slot)
            unit.slot = -1

    def _worker_for(self, job: Job, lane_number: int) -> PoolWorker | None:
        """Return the worker that computes the unit that a lane waits for."""
        lanes = [lane for lane in job.lanes if lane.number == lane_number]
        units = [unit for lane in lanes for unit in self._units.waited_for(lane)]
        return units[0].worker if units else None

    def _activity(self, job: Job, lane_number: int) -> str:
        """Return a sentence about what a lane waits for."""
        worker = self._worker_for(job, lane_number)
        what = "a worker" if worker is None else f"process {worker.pid}"
        return f"It waits for {what} of the pool {self._address.name!r}."

    def _report_slow_ranks(self) -> None:
        """Tell the ranks that have waited long which ranks they wait for."""
        now = time.monotonic()
        for lane, since_s in [*self._waiting.items()]:
            if now - max(since_s, lane.job.reported_s) <= SLOW_S:
                continue
            if slow := self._units.blocking_ranks(lane.rank, self._waiting_ranks()):
                lane.job.reported_s = now
                self._reply(lane, ("slow", sorted(slow), sorted(self._jobs)))
