"""Reads the records of record files for steps that take one at a time."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gristmill._engine.block_queue import BlockQueue
from gristmill._engine.program import Program
from gristmill._engine.reading import Reading, read_each
from gristmill._record_source import RecordSource, reads_natively

MIN_BLOCK = 64


class BlockReading:
    """Reads blocks of one stream's records.  See `reading.Reading`.

    Args:
        source: Read one by one where a block cannot be read.
        queue: Reads its blocks.
    """

    def __init__(self, source: RecordSource, queue: BlockQueue) -> None:
        self._source = source
        self._queue = queue
        # Records that were read and not yet asked for, from this position on.
        self._ready: list[Any] = []
        self._ready_at = 0

    def read(self, position: int, keys: Any) -> tuple[list[Any], Exception | None]:
        """Read the records at `position`, position + 1, ...

        Returns the elements up to the first failed read, and its exception.
        """
        count = len(keys)
        elements = self._take_ready(position, count)
        while len(elements) < count:
            at, wanted = position + len(elements), count - len(elements)
            found, failure = self._block(at, np.asarray(keys)[-wanted:])
            self._ready, self._ready_at = found[wanted:], at + wanted
            elements += found[:wanted]
            if failure is not None and len(elements) < count:
                return elements, failure
        behind = self._ready_at + len(self._ready)
        self._queue.look_ahead(max(position + count, behind), max(count, MIN_BLOCK))
        return elements, None

    def start(self, position: int) -> None:
        """Begin to read ahead from `position`."""
        self._queue.start(position, MIN_BLOCK)

    def forget(self) -> None:
        """Drop what was read ahead: the stream goes on from somewhere else."""
        self._queue.forget()
        self._ready = []

    def close(self) -> None:
        """Drop what was read ahead, and end the threads."""
        self._queue.close()
        self._ready = []

    def _take_ready(self, position: int, count: int) -> list[Any]:
        offset = position - self._ready_at
        if not 0 <= offset < len(self._ready):
            return []
        return self._ready[offset : offset + count]

    def _block(self, position: int, keys: Any) -> tuple[list[Any], Exception | None]:
        try:
            return self._queue.take(position, keys), None
        except Exception:
            # One by one: those before the record that failed are good.
            return read_each(self._source, keys.tolist())


def open_reading(
    program: Program, stream: int, look_ahead: bool
) -> Reading | BlockReading:
    """How the records of a program's stream are read."""
    source, length = program.source, program.stream_length(stream)
    options = program.read_options
    if program.in_blocks and reads_natively(source):
        queue = BlockQueue(
            source,
            options=options,
            keys_of=functools.partial(program.key_block, stream),
            length=length,
            look_ahead=look_ahead,
        )
        return BlockReading(source, queue)
    keys_of = functools.partial(program.source_keys, stream)
    return Reading(source, options, keys_of, length, look_ahead)
