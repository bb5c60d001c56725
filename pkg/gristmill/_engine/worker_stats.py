"""Types for measurements of workers and of the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from gristmill._engine.stage_times import StageTime

WorkersText: TypeAlias = Literal["actors", "workers"]


class RemoteWorkerStats(NamedTuple):
    """A worker of a pool, from its first call on.  All times are in s.

    Attributes:
        pid: The id of its process.
        node: The address of its machine.
        alive_s: Time since its first call, by its own clock.
        busy_s: Time that it computed, for all programs.
        calls: The number of this program's calls.
        outputs: The number of outputs that it made for this program.
        bytes: The size of these outputs.
        call_s: Time of the calls, from the request to the last byte of the answer.
        computing_s: Time that it computed these answers.
        transfer_s: Time from when an answer was ready to its arrival.
    """

    pid: int
    node: str
    alive_s: float = 0.0
    busy_s: float = 0.0
    calls: int = 0
    outputs: int = 0
    bytes: int = 0
    call_s: float = 0.0
    computing_s: float = 0.0
    transfer_s: float = 0.0


class RemoteStats(NamedTuple):
    """Measurements of the workers of a pool that compute for one iterator.

    Attributes:
        workers: The living workers that have answered.
        received: The number of outputs that the consumer received.
        decode_s: Time that this process took to decode these outputs, in s.
        workers_text: The name of the workers in texts: "actors" of a cluster, or
            "workers" of the pool of this host.
    """

    workers: tuple[RemoteWorkerStats, ...]
    received: int
    decode_s: float
    workers_text: WorkersText


class LocalWorkerStats(NamedTuple):
    """A worker process of this machine, and its predecessors with the same number.

    Attributes:
        pid: The id of its process.
        busy_s: Time that it computed and wrote outputs, in s.
        idle_s: Time that it waited for a unit, in s.
        outputs: The number of outputs that it made.
        bytes: The size of these outputs.
    """

    pid: int
    busy_s: float
    idle_s: float
    outputs: int
    bytes: int


class LocalStats(NamedTuple):
    """Measurements of this process, and of workers of this machine, for one iterator.

    Attributes:
        workers: The workers; empty if this process computes.
        stages: The time of each stage for one output, by the names of `stage_times`.
        names: Readable kinds and names of the stages that are not the user's steps.
    """

    workers: tuple[LocalWorkerStats, ...]
    stages: Mapping[str, StageTime]
    names: Mapping[str, tuple[str, str]]
