"""What workers run, a loader's program or a dataset's pipeline, and its streams.

A stream computes its outputs one after another, in any process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.record_errors import RecordErrors

Position = tuple[int, ...]
# An element, the keys of its records, and the stream's position behind it.
Output = tuple[Any, Int64Array, Position]
NO_KEYS: Int64Array = np.empty(0, np.int64)
# Modules that make a `Runnable`.  Each adds itself, and launchers that start later
# import it.
PROGRAM_MODULES: list[str] = []


class Stream(Protocol):
    """What computes a stream.

    One that may compute more than its next output needs has ``be_careful()``, which
    keeps it from that.  One whose ``computes_runs`` is true computes several outputs
    together: it has ``next_run(want)``, which gives as many as it can, and
    ``finished()``, which gives another thread those that are done meanwhile.  One that
    computes records before they are asked for has ``confine(count)``, called after each
    `seek` to a range of `count` records: it computes none after these.  One whose
    outputs are what its caller asks for has only ``answer(request, alloc)``, see
    `_core.Scheduler.ask`, and ``leave_slot()``, which lets go of the memory that
    `alloc` gave when the output is written.

    Attributes:
        position: Position after the last output; what a checkpoint stores.
        keys: Record keys that the last output was made of, shape (k,).
        record_errors: Bad records passed over since the output before the last.
    """

    position: Position
    keys: Int64Array
    record_errors: RecordErrors

    def seek(self, position: Position) -> None:
        """Make the next output the one after `position`."""

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output; its arrays come from `alloc` where they can.

        Raises:
            StopIteration: The stream has ended, or met many bad records and nothing
                else: then there are record errors, and it goes on behind them.
            GiveUp: It met more bad records than one output may.
            Exception: What the user's code raised; the records of this output up
                to the failing one count as consumed, and `position` says so.
        """

    def start_prefetch(self) -> None:
        """Begin to read ahead."""

    def close(self) -> None:
        """Stop reading ahead."""


class Runnable(Protocol):
    """A pipeline that is cut into streams, sent to workers and run there.

    Attributes:
        streams: Interleaved streams that define the order.
        owned: Whether each stream is computed by one worker, from the beginning on.
        tolerant: Whether bad records are passed over.
        position_capacity: Most integers in a stream's position.
        unit_records: Records of a stream that a worker computes at a time; only
            where streams are not owned.
        many_outputs: Whether they are several outputs.
        in_this_process: How a user asks for a run without workers.
        replay_hint: How a user computes one output in their own process.
        stages: Kind and name, for people, of stages that are no step of the user's, by
            their names in `stage_times`.
    """

    @property
    def streams(self) -> int: ...
    @property
    def owned(self) -> bool: ...
    @property
    def tolerant(self) -> bool: ...
    @property
    def position_capacity(self) -> int: ...
    @property
    def unit_records(self) -> int: ...
    @property
    def many_outputs(self) -> bool: ...
    @property
    def in_this_process(self) -> str: ...
    @property
    def replay_hint(self) -> str: ...
    @property
    def stages(self) -> Mapping[str, tuple[str, str]]: ...

    def stream_length(self, stream: int) -> int:
        """Records of one stream; -1 where that is not known."""

    def open_stream(self, stream: int, at: int = 0) -> Stream:
        """The stream number `stream`, at its beginning.

        Args:
            stream: From 0 to ``streams - 1``.
            at: In a worker, the address of an int64 that is told the record in work.
        """

    def greet(self, worker: int, workers: int) -> None:
        """Called once in each worker, before anything is computed there."""

    def unpicklable_note(self) -> str:
        """Which part of it cannot be sent to workers, and what to do."""


def first_unpicklable(parts: Iterable[tuple[str, Any]]) -> str | None:
    """The name of the first of some named parts that cannot be sent to workers."""
    from gristmill._base import open_files  # Slow to import.

    for name, part in parts:
        try:
            open_files.dumps(part)
        except Exception:
            return name
    return None


def outputs_of(first: int, keys: Int64Array, elements: list[Any]) -> list[Output]:
    """Return one output for each element, of the records from `first` on.

    Args:
        first: The number of the first record in the stream.
        keys: The keys of the records, shape (n,), n at least the number of elements.
        elements: One element of each record.
    """
    return [
        (element, keys[place : place + 1], (first + place + 1,))
        for place, element in enumerate(elements)
    ]


def pack_int64(data: bytes) -> Int64Array:
    """Pack bytes as int64, shape (1 + n,): how many they are, and the bytes."""
    packed = np.frombuffer(data + bytes(-len(data) % 8), np.int64)
    return np.concatenate([[len(data)], packed])


def unpack_int64(packed: Sequence[int] | Int64Array) -> bytes:
    """Return the bytes that `pack_int64` was given."""
    numbers = np.asarray(packed, np.int64)
    return numbers[1:].tobytes()[: int(numbers[0])]
