"""Runs workers that send a few cached outputs again and again.

This measures the cost of transport without that of computing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.record_errors import RecordErrors
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill._engine.state import RunPosition
from gristmill._engine.stream import NO_KEYS, Position, first_unpicklable

# The position of all streams at all times, because outputs repeat forever.
ONLY_POSITION: Position = (0,)


@dataclasses.dataclass(frozen=True)
class CachedProgram:
    """Repeats a few outputs forever.  See `gristmill._engine.stream.Runnable`."""

    outputs: tuple[Any, ...]
    streams: int

    owned = True
    tolerant = False
    position_capacity = 1
    unit_records = 1
    many_outputs = False
    in_this_process = "num_workers=0"
    replay_hint = "nothing"
    stages: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def init_worker(self, worker: int, workers: int) -> None:
        """Do nothing."""

    def unpicklable_note(self) -> str:
        name = first_unpicklable([("outputs", self.outputs)])
        return f"The {name} cannot be pickled."

    def stream_length(self, stream: int) -> int:
        """Return -1, because there is no end.  See `Runnable`."""
        return -1

    def open_stream(self, stream: int, record_address: int = 0) -> CachedStream:
        """Return a stream of the outputs; `record_address` is not used."""
        return CachedStream(self, stream)


class CachedStream:
    """The stream of a `CachedProgram`.  See `gristmill._engine.stream.Stream`."""

    def __init__(self, program: CachedProgram, stream: int) -> None:
        self.position = ONLY_POSITION
        self.keys: Int64Array = NO_KEYS
        self.record_errors = RecordErrors(stream)
        self._outputs = itertools.cycle(program.outputs)

    def seek(self, position: Position) -> None:
        """Do nothing: all positions are the same."""

    def next(self, alloc: Alloc | None = None) -> Any:
        return next(self._outputs)

    def start_prefetch(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def cached_run(outputs: tuple[Any, ...], workers: int) -> RemoteRun:
    """Return a run in which `workers` workers repeat some outputs forever.

    Each worker has one stream.
    """
    position = RunPosition(0, 0, [ONLY_POSITION] * workers, [False] * workers)
    options = RemoteOptions(
        workers=workers,
        buffer=1,
        max_restarts=0,
        memory_limit=0,
        stall_timeout=-1.0,  # Never warn.
        stall_action="warn",
    )
    return RemoteRun(CachedProgram(outputs, workers), position, options, None)
