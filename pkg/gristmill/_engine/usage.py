"""What workers on other machines were measured to do."""

from __future__ import annotations

from typing import NamedTuple


class FarWorker(NamedTuple):
    """One of them, from when it was first asked.

    Attributes:
        pid: Its process.
        node: The address of its machine.
        alive_s: How long that is, in s, by its own clock.
        busy_s: How long of that it computed, for whoever asked.
        calls: How often it was asked.
        outputs: What it made for us.
        bytes: Their size.
        asked_s: How long calls took, in s, from the question to the answer's last byte.
        computing_s: How long of that it computed.
        moving_s: How long of that answers were on their way that lay ready there.
    """

    pid: int
    node: str
    alive_s: float = 0.0
    busy_s: float = 0.0
    calls: int = 0
    outputs: int = 0
    bytes: int = 0
    asked_s: float = 0.0
    computing_s: float = 0.0
    moving_s: float = 0.0


class Usage(NamedTuple):
    """What those of one iterator do.

    Attributes:
        workers: Each that lives and has answered.
        received: Outputs that were handed to the consumer.
        receiving_s: How long this process took to make them of what had come, in s.
    """

    workers: tuple[FarWorker, ...]
    received: int
    receiving_s: float
