"""Reads the records of record files for steps that take one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill._base.types import Int64Array
from gristmill._engine.block_queue import BlockQueue, KeysOf, RecordBlocks
from gristmill._engine.program import Program
from gristmill._engine.reading import Reading
from gristmill._engine.stream_keys import StreamKeys
from gristmill.sources._record_source import RecordSource, reads_natively

MIN_BLOCK = 64


class BlockReading:
    """Reads blocks of one stream's records.  See `reading.Reading`.

    Args:
        source: Read one by one where a block cannot be read.
        queue: Reads its blocks.
        keys_of: Called with (position, count), returns the keys there.
    """

    def __init__(
        self, source: RecordSource, queue: BlockQueue, keys_of: KeysOf
    ) -> None:
        self._source = source
        self._queue = queue
        self._keys_of = keys_of
        # The block read last, from this position on; failed reads are None in it.
        self._ready: list[Any] = []
        self._ready_at = 0
        self._failures: dict[int, Exception] = {}

    def read(self, position: int, keys: Any) -> tuple[list[Any], Exception | None]:
        """Read the records at `position`, position + 1, ...

        Returns the elements up to the first failed read, and its exception.
        """
        count = len(keys)
        elements: list[Any] = []
        while len(elements) < count:
            at, wanted = position + len(elements), count - len(elements)
            if not 0 <= at - self._ready_at < len(self._ready):
                self._load(at, np.asarray(keys)[-wanted:])
            failure = self._failures.pop(at, None)
            if failure is not None:
                # Read anew if it is asked for again: an exception is raised once.
                self._drop_until(at + 1)
                return elements, failure
            elements += self._good(at, wanted)
            end = position + len(elements)
            if end == self._ready_at + len(self._ready):
                self._drop_until(end)
        behind = self._ready_at + len(self._ready)
        self._queue.look_ahead(max(position + count, behind), max(count, MIN_BLOCK))
        return elements, None

    def offer(self, position: int, records: list[bytes]) -> None:
        """Have the records from `position` on, which need not be read again."""
        self._drop()
        self._ready = [*records]
        self._ready_at = position

    def start(self, position: int) -> None:
        """Begin to read ahead from `position`."""
        self._queue.start(position, MIN_BLOCK)

    def forget(self) -> None:
        """Drop what was read ahead: the stream goes on from somewhere else."""
        self._queue.forget()
        self._drop()

    def close(self) -> None:
        """Drop what was read ahead, and end the threads."""
        self._queue.close()
        self._drop()

    def _drop(self) -> None:
        self._ready = []
        self._failures.clear()

    def _drop_until(self, position: int) -> None:
        self._ready = self._ready[position - self._ready_at :]
        self._ready_at = position

    def _good(self, position: int, count: int) -> list[Any]:
        """Up to `count` elements from `position` on, all before a failed read."""
        failed = (at for at in self._failures if at > position)
        end = min([position + count, *failed])
        first = position - self._ready_at
        return self._ready[first : end - self._ready_at]

    def _load(self, position: int, keys: Int64Array) -> None:
        """Make the block that waits at `position` ready, else those of `keys`."""
        self._drop()
        waits = self._queue.next_count(position)
        try:
            self._ready = self._queue.take(position, keys)
        except Exception:
            if waits:
                keys = self._keys_of(position, waits)
            self._read_singly(position, keys)
        self._ready_at = position

    def _read_singly(self, position: int, keys: Int64Array) -> None:
        """Read all of a block in which some record is bad."""
        for number, key in enumerate(keys.tolist(), position):
            element = None
            try:
                element = self._source[key]
            except Exception as error:
                self._failures[number] = error
            self._ready.append(element)


def open_reading(
    program: Program, keys: StreamKeys, look_ahead: bool
) -> Reading | BlockReading:
    """How the records of a program's stream are read."""
    source, options = program.source, program.read_options
    if not (program.in_blocks and reads_natively(source)):
        return Reading(source, options, keys.source_keys, keys.length, look_ahead)
    queue = BlockQueue(
        RecordBlocks(source),
        options=options,
        keys_of=keys.block,
        length=keys.length,
        look_ahead=look_ahead,
    )
    return BlockReading(source, queue, keys.block)
