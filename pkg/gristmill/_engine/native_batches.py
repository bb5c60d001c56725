"""Makes whole batches without Python, where a chain begins with one that can be.

The rows of a table are gathered, and the columns of other sources that hold columns.
Records of files are decoded where the first step can do so: they go from the file to
the batch, which is the slot in a worker, without becoming Python objects.
"""

from __future__ import annotations

import itertools
from typing import Any

from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill._engine.block_queue import BlockQueue
from gristmill._engine.blocks import RecordBlocks, TableBlocks
from gristmill._engine.column_batches import ColumnBatches
from gristmill._engine.program import Program
from gristmill._engine.stream_keys import StreamKeys
from gristmill.sources import TableSource, as_columns
from gristmill.sources._record_source import reads_natively


class NativeBatches:
    """Makes the batches of one stream.

    The queue reads batches of a table, or packed blocks of records.  Of these a decoder
    makes batches: a transformation that has `decode_block`, such as `ParseExample`.
    """

    def __init__(
        self,
        queue: BlockQueue,
        keys: StreamKeys,
        decoder: Any,
        rules: Rules,
    ) -> None:
        self._queue = queue
        self._keys = keys
        self._decoder = decoder
        self._rules = rules

    def batch(
        self, position: int, count: int, alloc: Alloc | None
    ) -> tuple[Any, Int64Array] | list[bytes]:
        """The batch of the records at `position`, position + 1, ... and their keys.

        The records themselves where they must be taken one by one: because of their
        form, or because one of them cannot be decoded, which is then found out.  None
        of them where one cannot be read.
        """
        if self._queue.next_count(position) not in (0, count):
            self._queue.forget()
        keys = self._keys.block(position, count)
        if self._decoder is None:
            batch = self._queue.take(position, keys, alloc)
            if alloc is None:
                self._queue.look_ahead(position + count, count)
            return batch, keys
        try:
            data, offsets = self._queue.take(position, keys)
        except Exception:
            return []
        try:
            self._queue.look_ahead(position + count, count)
            batch = self._decoder.decode_block(data, offsets, alloc, self._rules)
        except Exception:
            batch = None
        if batch is not None:
            return batch, keys
        bounds = itertools.pairwise(offsets.tolist())
        return [data[begin:end].tobytes() for begin, end in bounds]

    def start(self, position: int, count: int) -> None:
        """Begin to read batches of `count` records ahead, from `position` on."""
        self._queue.start(position, count)

    def forget(self) -> None:
        """Drop what was read ahead: the stream goes on from somewhere else."""
        self._queue.forget()

    def close(self) -> None:
        """Drop what was read ahead, and end the threads."""
        self._queue.close()


def open_batches(
    program: Program, keys: StreamKeys, look_ahead: bool
) -> NativeBatches | ColumnBatches | None:
    """How the batches of a program's stream are made natively, where they can be."""
    level, source = program.levels[0], program.source
    if not program.in_blocks or level.batch is None or level.batch.batch_fn is not None:
        return None
    blocks: RecordBlocks | TableBlocks
    decoder: Any = None
    if isinstance(source, TableSource) and source.gathers and not level.steps:
        blocks = TableBlocks(source, program.rules)
    elif reads_natively(source) and source.serves_bytes and len(level.steps) == 1:
        decoder = getattr(level.steps[0][1], "__self__", None)
        if not getattr(decoder, "decodes_blocks", False):
            return None
        blocks = RecordBlocks(source, packed=True)
    elif not level.steps and (columns := as_columns(source)) is not None:
        return ColumnBatches(columns, keys, program.rules)
    else:
        return None
    queue = BlockQueue(blocks, keys, program.read_options, look_ahead)
    return NativeBatches(queue, keys, decoder, program.rules)
