"""Protocols for the pipelines that workers run, and for the streams of these.

A pipeline is a loader's program or a dataset's chain.  A stream computes its outputs in
order, in any process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.record_errors import RecordErrors

# At least one integer.  Each kind of stream defines what they mean.
Position = tuple[int, ...]
# An element, the keys of its records, and the stream's position after it.
Output = tuple[Any, Int64Array, Position]
NO_KEYS: Int64Array = np.empty(0, np.int64)
# Modules that make a `Runnable`.  Each adds itself, and launchers that start later
# import it.
PROGRAM_MODULES: list[str] = []


class Stream(Protocol):
    """Computes the outputs of a stream.

    Not thread-safe: one thread at a time calls the methods, except `outputs_so_far`.
    A stream may have these optional methods:

    - ``disable_lookahead()``: compute only the next output, if the stream may compute
      more than that.
    - ``next_run(want)`` and ``outputs_so_far()``, if ``computes_runs`` is true: compute
      up to `want` outputs in one call; return the outputs that this call has finished,
      while it runs in another thread.
    - ``restrict_to(count)``, if the stream computes records in advance: do not compute
      records after the next `count`.  It is called after each `seek` to a range.
    - ``answer(request, alloc)`` and ``leave_slot()``, if the outputs answer requests,
      see `_core.Scheduler.add_request`: compute an answer; release the memory from
      `alloc` after the answer was written.  Such a stream has no other methods.

    Attributes:
        position: The position after the last output, which a checkpoint stores.
        keys: The keys of the last output's records, int64 of shape (k,), -1 for a key
            that is not an int64.
        record_errors: Bad records that were skipped or substituted for the last output.
    """

    position: Position
    keys: Int64Array
    record_errors: RecordErrors

    def seek(self, position: Position) -> None:
        """Make the next output the one after `position`."""

    def next(self, alloc: Alloc | None = None) -> Any:
        """Return the next output; its arrays come from `alloc` if possible.

        Raises:
            StopIteration: The stream has ended, or it met many bad records and nothing
                else.  In the second case there are record errors, and the next call
                continues after them.
            OutputAbandoned: It met more bad records than the limit of one output.  The
                next call computes the same output.
            Exception: The user's code raised it.  `position` is after the record that
                failed.
        """

    def start_prefetch(self) -> None:
        """Begin to read ahead."""

    def close(self) -> None:
        """Stop reading ahead."""


class Runnable(Protocol):
    """A pipeline that is cut into streams, sent to workers and run there.

    Attributes:
        streams: Interleaved streams that define the order.
        owned: Whether one worker computes each stream, from the beginning on.
        tolerant: Whether bad records are skipped or substituted.
        position_capacity: The largest number of integers in a stream's position.
        unit_records: Records of a stream that a worker computes at a time, if streams
            are not owned.
        many_outputs: Whether a unit has several outputs.
        in_this_process: The argument with which a user runs it without workers.
        replay_hint: The call with which a user computes one output in this process.
        stages: Readable kinds and names of the stages that are not the user's steps, by
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
        """Return the number of records of a stream; -1 if it is not known."""

    def open_stream(self, stream: int, record_address: int = 0) -> Stream:
        """Return the stream number `stream`, at its beginning.

        Args:
            stream: From 0 to ``streams - 1``.
            record_address: In a worker, the address of an int64 to which the stream
                writes the key of each record before it computes the record; else 0.
        """

    def init_worker(self, worker: int, workers: int) -> None:
        """Prepare a worker; called once in each, before it computes anything."""

    def unpicklable_note(self) -> str:
        """Return a text that names the part that cannot be pickled, and the remedy."""


def record_word(record_address: int) -> ctypes.c_int64:
    """Return the int64 that contains the key of the current record.

    Args:
        record_address: The address of shared memory; 0 for private memory.
    """
    if not record_address:
        return ctypes.c_int64()
    return ctypes.c_int64.from_address(record_address)


def first_unpicklable(parts: Iterable[tuple[str, Any]]) -> str | None:
    """Return the name of the first part that cannot be pickled; None if all can."""
    from gristmill._base import open_files  # Slow to import.

    for name, part in parts:
        try:
            open_files.dumps(part)
        except Exception:
            return name
    return None


def to_outputs(first: int, keys: Int64Array, elements: list[Any]) -> list[Output]:
    """Return one output for each element, of the records from `first` on.

    Args:
        first: The number of the first record in the stream.
        keys: The keys of the records, shape (n,), n at least the number of elements.
        elements: One element of each record, from the first one on.
    """
    return [
        (element, keys[offset : offset + 1], (first + offset + 1,))
        for offset, element in enumerate(elements)
    ]


def pack_int64(data: bytes) -> Int64Array:
    """Pack bytes as int64, shape (1 + n,): the number of bytes, then the bytes."""
    packed = np.frombuffer(data + bytes(-len(data) % 8), np.int64)
    return np.concatenate([[len(data)], packed])


def unpack_int64(packed: Sequence[int] | Int64Array) -> bytes:
    """Return the bytes that `pack_int64` has packed."""
    numbers = np.asarray(packed, np.int64)
    return numbers[1:].tobytes()[: int(numbers[0])]
