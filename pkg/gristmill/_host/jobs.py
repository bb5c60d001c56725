"""The ranks that are connected to a pool's server, and their lanes."""

from __future__ import annotations

import dataclasses
import socket

from gristmill._host.joining import Joining
from gristmill._pool.unit_task import UnitTask


@dataclasses.dataclass(eq=False)
class Job:
    """A connection of a rank.

    It lasts as long as arrays of the rank may view units, even after the rank has left.

    Attributes:
        number: Its number in the server.
        joining: Its first message.
        connection: The connection.
        pidfd: Readable when its process has ended; -1 if there is none.
        lanes: Its lanes.
        is_welcome: Whether it has the memory of the pool.
        reported_s: The time of the last report about slow ranks, by `time.monotonic`.
    """

    number: int
    joining: Joining
    connection: socket.socket
    pidfd: int
    lanes: list[Lane] = dataclasses.field(default_factory=list)
    is_welcome: bool = False
    reported_s: float = 0.0

    @property
    def rank(self) -> int:
        """The number of its rank."""
        return self.joining.rank


@dataclasses.dataclass(eq=False)
class Lane:
    """A lane of a rank.

    Attributes:
        job: The connection of its rank.
        number: The number of the lane within the rank.
        program: The key of the program whose units it requests.
        connection: Its connection.
        request: The task that it waits for, or None.
    """

    job: Job
    number: int
    program: str
    connection: socket.socket
    request: UnitTask | None = None

    @property
    def rank(self) -> int:
        """The number of its rank."""
        return self.job.rank
