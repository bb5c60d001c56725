"""A rank's connection to the pool of a host; starts the pool if there is none."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import pickle
import socket
import threading
import time
from typing import Any, NamedTuple

import gristmill
from gristmill._base import log
from gristmill._engine import packing
from gristmill._engine.stream import Runnable
from gristmill._host import messages
from gristmill._host.address import Address
from gristmill._host.joining import Joining
from gristmill._host.mode import Mode
from gristmill._host.programs import Part, pack_rest, shared_field
from gristmill._host.server_process import start_server
from gristmill._host.slot_views import PoolMemory
from gristmill._pool.call_metrics import CallMetrics
from gristmill._pool.identity import digest_of
from gristmill._pool.pool import Lane, TimedResult, WorkerLost
from gristmill._pool.unit_task import TaskResult, UnitTask

# Attempts to connect to a pool that ends while this process connects.
MAX_ATTEMPTS = 100
RETRY_S = 0.02


class HostPoolOptions(NamedTuple):
    """The options of a rank.

    Attributes:
        name: The name of the pool, see `Address`.
        rank: The number of this rank.
        ranks: The number of ranks.
        mode: How ranks divide the outputs.
        ahead: The number of units that may be kept for slow ranks.
        memory_limit: The bytes of shared memory; 0 for 80 % of the available memory.
    """

    name: str
    rank: int
    ranks: int
    mode: Mode
    ahead: int
    memory_limit: int


@dataclasses.dataclass(eq=False)
class PoolProcess:
    """A worker of the pool, as this rank has seen it.

    Attributes:
        pid: Its process.
        address: The name of this machine.
        loss_reason: Always empty.
    """

    pid: int
    address: str = ""
    loss_reason: str = ""

    @property
    def location(self) -> PoolProcess:
        return self

    def __str__(self) -> str:
        return f"process {self.pid} of the pool"


class _Membership:
    """The connection of a rank to one server.

    Attributes:
        control: The connection for the rank itself.
        memory: The memory of the pool.
        lanes: The connections of the lanes.
    """

    def __init__(self, control: socket.socket, memory: PoolMemory) -> None:
        self.control = control
        self.memory = memory
        self.lanes: dict[Lane, socket.socket] = {}

    def release(self, unit: int) -> None:
        """Tell the server that this rank has no views of a unit anymore."""
        messages.send(self.control, ("release", unit))

    def close(self) -> None:
        """End the calls of all lanes, and close the connections."""
        for connection in [self.control, *self.lanes.values()]:
            _shut_down(connection)


class HostPool:
    """The pool of a host, for the lanes of one rank.  See `gristmill._pool.pool.Pool`.

    If the server is lost, its workers and their results are lost too.  The next call
    starts another server, or connects to the one that another rank has started.

    Args:
        base: The program with the data of all ranks; see `programs`.
        program: The program of this rank.
        part: Its part of the base.
        workers: The number of workers that this rank needs.
        options: The options of the rank.
        parts: The parts of the loader, to compare with those of other ranks.
    """

    def __init__(
        self,
        base: Runnable,
        program: Runnable,
        part: Part,
        workers: int,
        options: HostPoolOptions,
        parts: dict[str, Any],
    ) -> None:
        self._base = base
        self._program = program
        self._part = part
        self._workers = workers
        self._options = options
        self._parts = parts
        self._address = Address(options.name)
        self._users = 0
        self._closing = False
        # Held while this rank joins a server or leaves it.
        self._lock = threading.Lock()
        # None before this rank has joined, and after the server was lost.
        self._membership: _Membership | None = None
        # Held during a question to the server and its answer.
        self._question_lock = threading.Lock()
        self._processes: dict[int, PoolProcess] = {}
        # The number of each lane in messages.
        self._lane_numbers: dict[Lane, int] = {}
        self._next_lane_number = itertools.count()
        self.failure = ""

    def new_metrics(self) -> CallMetrics:
        return CallMetrics()

    def open(self) -> None:
        """Join the pool, and wait until it has loaded the program.

        Raises:
            ValueError: Other ranks have another loader, or other options, or another
                process uses this rank.
            PermissionError: The name belongs to a pool of another user.
            Exception: The program cannot be pickled.
        """
        self._users += 1
        if self._users > 1:
            return
        # Raise the errors of pickling here, and not in a lane.
        _ = self._packed_program, self._program_key
        with self._lock:
            self._membership = self._join()
        if self.failure:
            raise ValueError(self.failure)

    def resize(self, count: int) -> None:
        self._workers = count
        if (membership := self._membership) is not None:
            self._tell(membership, ("resize", count))

    def compute(self, lane: Lane, task: UnitTask) -> TimedResult | WorkerLost | None:
        membership = self._joined()
        if membership is None:
            return None
        try:
            connection = self._lane_connection(membership, lane)
            messages.send(connection, (tuple(task),))
            while received := messages.receive(connection):
                (kind, *details), _ = received
                if kind == "computed":
                    return self._take(membership, *details)
                if kind == "lost":
                    return WorkerLost("", *details)
                log.warning("%s", self._slow_text(*details))
        except OSError:
            pass  # The server is gone, or this pool was closed.
        self._drop(membership)
        if self._closing:
            return None
        return WorkerLost(str(self), "its server has ended", blames_unit=False)

    def activity(self, lane: Lane) -> str:
        membership = self._membership
        if membership is not None:
            number = self._lane_number(lane)
            with self._question_lock:
                try:
                    messages.send(membership.control, ("activity", number))
                    if received := messages.receive(membership.control):
                        return str(received[0][1])
                except OSError:
                    pass
        return f"It waits for {self}."

    def end_worker(self, lane: Lane) -> None:
        if (membership := self._membership) is not None:
            self._tell(membership, ("kill", self._lane_number(lane)))

    def close(self) -> None:
        self._users -= 1
        if self._users:
            return
        self._closing = True
        membership = self._membership
        if membership is not None:
            self._tell(membership, ("leave",))
            membership.close()

    def __str__(self) -> str:
        return f"the pool {self._options.name!r}"

    @functools.cached_property
    def _packed_program(self) -> bytes:
        return pack_rest(self._program, self._part)

    @functools.cached_property
    def _program_key(self) -> str:
        """A digest of what differs between the programs of a pool."""
        rest = {
            field.name: getattr(self._program, field.name)
            for field in dataclasses.fields(self._program)  # type: ignore[arg-type]
            if field.name != shared_field(self._program)
        }
        return digest_of((rest, self._part))

    @functools.cached_property
    def _part_digests(self) -> dict[str, str]:
        return {name: digest_of(part) for name, part in self._parts.items()}

    def _slow_text(self, slow: list[int], joined: list[int]) -> str:
        """Return the text of a warning that names the ranks that are slow."""
        absent = sorted(set(slow) - set(joined))
        texts = []
        if absent:
            texts.append(f"has not joined: {', '.join(map(str, absent))}")
        if late := sorted(set(slow) & set(joined)):
            texts.append(f"has not taken its outputs: {', '.join(map(str, late))}")
        return (
            f"Rank {self._options.rank} waits, because another rank of {self}"
            f" {'; '.join(texts)}. At most ahead={self._options.ahead} outputs are kept"
            " for slow ranks. Pass a larger one, or find out why they are slow."
        )

    def _lane_number(self, lane: Lane) -> int:
        if (number := self._lane_numbers.get(lane)) is not None:
            return number
        return self._lane_numbers.setdefault(lane, next(self._next_lane_number))

    def _tell(self, membership: _Membership, message: messages.Message) -> None:
        try:
            messages.send(membership.control, message)
        except OSError:
            self._drop(membership)

    def _take(
        self,
        membership: _Membership,
        unit: int,
        offset: int,
        used: int,
        packed: bytes,
        pid: int,
        ready_s: float,
    ) -> TimedResult:
        """Return the result of a unit, whose payload views the pool's memory."""
        result: TaskResult = pickle.loads(packed)
        release = functools.partial(membership.release, unit)
        payload = membership.memory.view(offset, used, release)
        if (process := self._processes.get(pid)) is None:
            process = PoolProcess(pid, os.uname().nodename)
            process = self._processes.setdefault(pid, process)
        return TimedResult(process, ready_s, result._replace(payload=payload))

    def _lane_connection(self, membership: _Membership, lane: Lane) -> socket.socket:
        """Return the connection of a lane; each lane is one thread."""
        connection = membership.lanes.get(lane)
        if connection is None:
            connection = self._address.connect()
            if connection is None:
                raise ConnectionRefusedError
            message = (
                "lane",
                self._options.rank,
                os.getpid(),
                self._lane_number(lane),
                self._program_key,
                self._packed_program,
            )
            messages.send(connection, message)
            membership.lanes[lane] = connection
            if self._closing:  # `close` may not have seen the connection.
                _shut_down(connection)
        return connection

    def _joined(self) -> _Membership | None:
        """Return the connection to the server; None if the pool has ended."""
        with self._lock:
            if self._membership is None and not self._closing and not self.failure:
                self._membership = self._join()
            return None if self._closing else self._membership

    def _drop(self, membership: _Membership) -> None:
        """Forget a server that is gone."""
        with self._lock:
            if self._membership is membership:
                self._membership = None
        membership.close()

    def _join(self) -> _Membership | None:
        """Find or start the server and join; sets `failure` if it refuses."""
        for _ in range(MAX_ATTEMPTS):
            control = self._address.connect()
            if control is None:
                listener = self._address.listen()
                if listener is not None:
                    with listener:
                        start_server(self._options.name, listener)
                continue
            try:
                membership = self._try_to_join(control)
            except OSError:
                membership = None
            if membership is not None or self.failure or self._closing:
                return membership
            control.close()
            time.sleep(RETRY_S)  # The server was about to end.
        self.failure = f"The server of {self} ends whenever this process joins it."
        return None

    def _try_to_join(self, control: socket.socket) -> _Membership | None:
        """Join the server at the other end; None if it ends or refuses."""
        options = self._options
        joining = Joining(
            gristmill.__version__,
            os.getpid(),
            options.rank,
            options.ranks,
            options.mode,
            self._workers,
            options.ahead,
            options.memory_limit,
            frozenset(os.sched_getaffinity(0)),
            self._part_digests,
        )
        messages.send(control, ("join", tuple(joining)))
        while received := messages.receive(control):
            (kind, *details), fds = received
            if kind == "joined":
                private = options.mode is Mode.BROADCAST
                memory = PoolMemory(fds[0], details[0], private=private)
                os.close(fds[0])
                return _Membership(control, memory)
            if kind == "refused":
                self.failure = details[0]
                return None
            program_fd = packing.pack(self._base)
            try:
                messages.send(control, ("program",), program_fd)
            finally:
                os.close(program_fd)
        return None


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # The server may be gone.
        connection.shutdown(socket.SHUT_RDWR)
