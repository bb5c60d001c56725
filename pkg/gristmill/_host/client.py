"""A rank's connection to the pool of a host; starts the pool if needed."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import itertools
import os
import pickle
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import gristmill
from gristmill._base import log
from gristmill._engine import packing
from gristmill._engine.stream import Runnable
from gristmill._host import messages
from gristmill._host.address import Address
from gristmill._host.joining import Joining, describe_slow_ranks
from gristmill._host.membership import (
    Membership,
    PoolProcess,
    UnitLost,
    shut_down,
)
from gristmill._host.mode import Mode
from gristmill._host.programs import Part, pack_rest, shared_field
from gristmill._host.server_process import connect_or_start
from gristmill._host.slot_views import PoolMemory
from gristmill._host.unit_packets import ResultDetails
from gristmill._pool.call_metrics import CallMetrics
from gristmill._pool.identity import digest_of, digests_of
from gristmill._pool.pool import Lane
from gristmill._pool.unit_task import Bytes

# Attempts to connect to a pool that ends while this process connects.
MAX_ATTEMPTS = 100
RETRY_S = 0.02
_TOO_MANY_FILES = errno.EMFILE, errno.ENFILE
_CLOSE = "Close files, or raise the limit (ulimit -n; of the machine: fs.file-max)."


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


# The last pool that each process has opened for a rank, by process, name and rank.
_newest: weakref.WeakValueDictionary[tuple[int, str, int], HostPool] = (
    weakref.WeakValueDictionary()
)


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
        # The owners of the lanes that use it.
        self._users: set[str] = set()
        self._closing = threading.Event()
        # Held while this rank joins a server.
        self._lock = threading.Lock()
        # The connection to a server that this rank joins, or has joined last.
        self._control: socket.socket | None = None
        # None before this rank has joined, and after the server was lost.
        self._membership: Membership | None = None
        # By number, those that lanes or views refer to.
        self._memberships: weakref.WeakValueDictionary[int, Membership] = (
            weakref.WeakValueDictionary()
        )
        self._joins_again = False
        self._processes: dict[int, PoolProcess] = {}
        # The number of each lane in messages.
        self._lane_numbers: dict[Lane, int] = {}
        self._next_lane_number = itertools.count()
        self.failure = ""

    def new_metrics(self) -> CallMetrics:
        return CallMetrics()

    def open(self, owner: str) -> None:
        """Join the pool, and wait until it has loaded the program.

        Args:
            owner: See `gristmill._pool.pool.Pool.open`.

        Raises:
            ValueError: Other ranks have another loader, or other options, or another
                process uses this rank.
            PermissionError: The name belongs to a pool of another user.
            Exception: The program cannot be pickled.
        """
        if not self._users:
            # Raise the errors of pickling here, and not in a lane.
            _ = self._packed_program, self._program_key
            self._replace_older()
            self._joined()
            if self.failure:
                raise ValueError(self.failure)
        self._users.add(owner)

    def resize(self, count: int) -> None:
        self._workers = count
        if (membership := self._membership) is not None:
            membership.tell("resize", count)

    def connect(self, lane: Lane) -> tuple[Membership, socket.socket] | UnitLost | None:
        """Connect a lane to the server, and join or start one if needed.

        Returns:
            The membership and the connection; None if the pool was closed or has
            failed.
        """
        membership = None
        try:
            if (membership := self._joined()) is not None:
                return membership, self._lane_connection(membership, lane)
        except OSError as error:
            if error.errno in _TOO_MANY_FILES:
                self.failure = f"A lane cannot connect to {self}: {error}. {_CLOSE}"
            elif membership is None:
                raise
            else:
                return self._server_lost(membership, lane, f": {error}")
        return None

    def prepare(self, request: bytes) -> bytes:
        """Return the request to send for one that `_core.PoolLane` does not send."""
        return request

    def handle(
        self, membership: Membership, lane: Lane, packet: bytes
    ) -> UnitLost | bool | None:
        """Handle what the server sent to a lane, except a result.

        Returns:
            The loss of the lane's unit; False if the pool was closed or has failed;
            None if the result is still to come.
        """
        if not packet:
            return self._server_lost(membership, lane) or False
        kind, *details = pickle.loads(packet)
        if kind == "lost":
            return UnitLost(*details)
        if kind == "failed":
            self.failure = details[0]
            return False
        options = self._options
        text = describe_slow_ranks(str(self), options.rank, options.ahead, *details)
        log.warning("%s", text)
        return None

    def take(
        self, server: int, details: ResultDetails
    ) -> tuple[Bytes, Callable[[], None], PoolProcess]:
        """Return a view of a unit, its release, and the process that computed it.

        Args:
            server: The number of the membership of its lane.
            details: The details of the result.
        """
        membership = self._memberships[server]
        # Without memory for the unit, there is no offset.
        payload = membership.memory.view(max(0, details.offset), details.used)
        release = functools.partial(membership.release, details.unit)
        if (process := self._processes.get(details.pid)) is None:
            process = PoolProcess(details.pid, os.uname().nodename)
            process = self._processes.setdefault(details.pid, process)
        return payload, release, process

    def activity(self, lane: Lane) -> str:
        membership = self._membership
        with contextlib.suppress(OSError):
            connection = None if membership is None else self._address.connect()
            if membership is not None and connection is not None:
                with connection:
                    question = "activity", membership.number, self._lane_number(lane)
                    messages.send(connection, question)
                    if received := messages.receive(connection):
                        return str(received[0][0])
        return f"It waits for {self}."

    def end_worker(self, lane: Lane) -> None:
        if (membership := self._membership) is not None:
            membership.tell("kill", self._lane_number(lane))

    def close(self, owner: str) -> None:
        self._users.discard(owner)
        membership = self._membership
        if self._users:
            if membership is not None:
                lanes = [lane for lane in [*membership.lanes] if lane[0] == owner]
                membership.end_lanes(lanes)
            return
        self._closing.set()
        if membership is not None:
            self._membership = None
            membership.leave()
        elif self._control is not None:
            shut_down(self._control)  # A lane may wait while it joins.

    def __str__(self) -> str:
        return f"the pool {self._options.name!r}"

    def _replace_older(self) -> None:
        """Leave the pool with the older iterator of this process, if there is one."""
        key = os.getpid(), self._options.name, self._options.rank
        if (older := _newest.get(key)) is not None and not older._closing.is_set():
            older.failure = (
                f"This iterator has ended, because its process uses rank"
                f" {self._options.rank} of {self} in a newer one. Pass another name to"
                " use both."
            )
            if (membership := older._membership) is not None:
                older._membership = None
                membership.leave()
        _newest[key] = self

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
        return digest_of((rest, self._part), whole_arrays=True)

    @functools.cached_property
    def _part_digests(self) -> dict[str, str]:
        return digests_of(self._parts)

    def _lane_number(self, lane: Lane) -> int:
        if (number := self._lane_numbers.get(lane)) is not None:
            return number
        return self._lane_numbers.setdefault(lane, next(self._next_lane_number))

    def _lane_connection(self, membership: Membership, lane: Lane) -> socket.socket:
        """Return the connection of a lane; each lane is one thread.

        Raises:
            OSError: The server is gone.
        """
        connection = membership.lanes.get(lane)
        if connection is None:
            connection = self._address.connect()
            if connection is None:
                raise ConnectionRefusedError
            membership.lanes[lane] = connection
            number = self._lane_number(lane)
            program = self._program_key, self._packed_program
            messages.send(connection, ("lane", membership.number, number, *program))
            # `close` may not have seen the connection.
            if self._has_closed(lane):
                membership.end_lanes([lane])
        return connection

    def _has_closed(self, lane: Lane) -> bool:
        return self._closing.is_set() or lane[0] not in self._users

    def _server_lost(
        self, membership: Membership, lane: Lane, reason: str = ""
    ) -> UnitLost | None:
        """Return the loss of a lane's unit with its server; None after `close`."""
        if self._has_closed(lane):
            return None
        self._drop(membership)
        return UnitLost(f"{self} was lost: its server has ended{reason}", False)

    def _joined(self) -> Membership | None:
        """Return the connection to the server; None if the pool has ended."""
        with self._lock:
            has_ended = self._closing.is_set() or self.failure
            if self._membership is None and not has_ended:
                membership = self._join()
                self._membership = membership
                if membership is not None:
                    self._memberships[membership.number] = membership
                self._joins_again = True
                if membership is not None and self._closing.is_set():
                    membership.leave()  # `close` has missed it.
            return None if self._closing.is_set() else self._membership

    def _drop(self, membership: Membership) -> None:
        """Leave a server that is gone."""
        with self._lock:
            if self._membership is membership:
                self._membership = None
                membership.leave()

    def _join(self) -> Membership | None:
        """Find or start the server and join; sets `failure` if it refuses."""
        for _ in range(MAX_ATTEMPTS):
            control = connect_or_start(self._address)
            self._control = control
            membership = None
            if control is not None and not self._closing.is_set():
                try:
                    membership = self._try_to_join(control)
                finally:
                    if membership is None:
                        control.close()
            if membership is not None or self.failure or self._closing.is_set():
                return membership
            # The server was about to end, or another process was about to start one.
            time.sleep(RETRY_S)
        self.failure = f"The server of {self} ends whenever this process joins it."
        return None

    def _try_to_join(self, control: socket.socket) -> Membership | None:
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
            self._joins_again,
            self._part_digests,
        )
        with contextlib.suppress(ConnectionError):
            messages.send(control, ("join", tuple(joining)))
        while received := messages.receive(control):
            (kind, *details), fds = received
            if kind == "joined":
                number, nbytes = details
                private = options.mode is Mode.BROADCAST
                try:
                    memory = PoolMemory(fds[0], nbytes, private=private)
                finally:
                    os.close(fds[0])
                return Membership(control, number, memory)
            if kind == "refused":
                self.failure = details[0]
                return None
            program_fd = packing.pack(self._base)
            try:
                with contextlib.suppress(ConnectionError):
                    messages.send(control, ("program",), program_fd)
            finally:
                os.close(program_fd)
        return None
