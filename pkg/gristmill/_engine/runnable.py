"""What workers run: a loader's program, or a dataset's pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from gristmill._base import open_files
from gristmill._engine.stream import Stream


class Runnable(Protocol):
    """A pipeline that is cut into streams, sent to workers and run there.

    Attributes:
        streams: Interleaved streams that define the order.
        owned: Whether each stream is computed by one worker, from the beginning on.
        tolerant: Whether bad records are passed over.
        vector_capacity: Integers that a stream's position takes, at most.
        unit_records: Records of a stream that a worker computes at a time; only
            where streams are not owned.
        in_this_process: How a user asks for a run without workers.
        replay_hint: How a user computes one output in their own process.
    """

    @property
    def streams(self) -> int: ...
    @property
    def owned(self) -> bool: ...
    @property
    def tolerant(self) -> bool: ...
    @property
    def vector_capacity(self) -> int: ...
    @property
    def unit_records(self) -> int: ...
    @property
    def in_this_process(self) -> str: ...
    @property
    def replay_hint(self) -> str: ...

    def stream_length(self, stream: int) -> int:
        """Records of one stream; -1 where that is not known."""

    def open_stream(self, stream: int, at: int = 0) -> Stream:
        """The stream number `stream`, at its beginning.

        Args:
            stream: From 0 to ``streams - 1``.
            at: In a worker, the address of an int64 that is told the record in work.
        """

    def greet(self, worker: int) -> None:
        """Called once in a worker, before anything is computed there."""

    def unpicklable_note(self) -> str:
        """Which part of it cannot be sent to workers, and what to do."""


class Carrier(Protocol):
    """Stands for a `Runnable` while it is pickled, and knows better how to do that."""

    def unpicklable_note(self) -> str:
        """See `Runnable`."""


def first_unpicklable(parts: Iterable[tuple[str, Any]]) -> str | None:
    """The name of the first part that cannot be sent to workers.

    Args:
        parts: Names and things.
    """
    for name, part in parts:
        try:
            open_files.dumps(part)
        except Exception:
            return name
    return None
