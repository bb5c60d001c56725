"""What workers, and the stages of a pipeline, were measured to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gristmill._engine.stage_times import StageTime


class FarWorker(NamedTuple):
    """A worker on another machine, from when it was first asked.

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
    """What workers on other machines do for one iterator.

    Attributes:
        workers: Each that lives and has answered.
        received: Outputs that were handed to the consumer.
        receiving_s: How long this process took to make them of what had come, in s.
    """

    workers: tuple[FarWorker, ...]
    received: int
    receiving_s: float


class NearWorker(NamedTuple):
    """A worker process of this machine, with those that had its number before.

    Attributes:
        pid: Its process.
        busy_s: How long it has computed and written outputs, in s.
        idle_s: How long it has waited for something to compute, in s.
        outputs: What it made.
        bytes: Their size.
    """

    pid: int
    busy_s: float
    idle_s: float
    outputs: int
    bytes: int


class NearUsage(NamedTuple):
    """What this process and workers of this machine do for one iterator.

    Attributes:
        workers: Empty where this process computes.
        stages: What an output takes of each stage, by the names of `stage_times`.
        names: Kind and name, for people, of those that are no step of the user's.
    """

    workers: tuple[NearWorker, ...]
    stages: Mapping[str, StageTime]
    names: Mapping[str, tuple[str, str]]
