"""The connection of a rank to one server, and the workers that it has seen."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import Iterable
from typing import Any, NamedTuple

from gristmill._host import messages
from gristmill._host.slot_views import PoolMemory
from gristmill._pool.pool import Lane


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


class UnitLost(NamedTuple):
    """A lane's unit that was not computed.

    Attributes:
        report: A sentence about the loss.
        blames_unit: See `gristmill._pool.pool.WorkerLost`.
    """

    report: str
    blames_unit: bool


class Membership:
    """The connection of a rank to one server.

    Views of the pool's memory refer to it, so it is closed after the last one.

    Attributes:
        control: The connection for the rank itself.
        number: The number of the connection in the server.
        memory: The memory of the pool.
        lanes: The connections of the lanes.
    """

    def __init__(self, control: socket.socket, number: int, memory: PoolMemory) -> None:
        self.control = control
        self.number = number
        self.memory = memory
        self.lanes: dict[Lane, socket.socket] = {}

    def tell(self, *message: Any) -> None:
        """Send a message to the server, unless it is gone."""
        messages.try_send(self.control, message)

    def release(self, unit: int) -> None:
        """Tell the server that this rank has no views of a unit anymore."""
        self.tell("release", unit)

    def leave(self) -> None:
        """Leave the pool, but keep the views; end the calls of all lanes."""
        self.tell("leave")
        self.end_lanes(self.lanes)

    def end_lanes(self, lanes: Iterable[Lane]) -> None:
        """End the calls of lanes."""
        for lane in [*lanes]:
            if connection := self.lanes.pop(lane, None):
                shut_down(connection)


def shut_down(connection: socket.socket) -> None:
    """End the calls that wait for a connection."""
    with contextlib.suppress(OSError):  # The server may be gone.
        connection.shutdown(socket.SHUT_RDWR)
