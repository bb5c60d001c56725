"""Makes batches of a source's records without a Python object for each record.

The rows of a table are gathered, and so are the columns of other sources that have
columns.  If the only step before the batch can decode a block of records, records of
files are decoded directly into the batch, which lies in the worker's slot.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from gristmill import batching, transforms
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill._engine.block_queue import BlockQueue
from gristmill._engine.blocks import RecordBlocks, TableBlocks
from gristmill._engine.column_batches import ColumnBatches
from gristmill._engine.program import Program
from gristmill._engine.stream_keys import KeyBlocks
from gristmill._hot.error_location import as_failure
from gristmill.options import ReadOptions
from gristmill.sources import TableSource, as_columns
from gristmill.sources._record_source import reads_natively


class NativeBatches:
    """Makes batches of the records at consecutive positions.

    The queue reads batches of a table, or packed blocks of records.  A decoder makes
    batches of these blocks: a transform with `decode_block`, such as `ParseExample`.

    Attributes:
        is_table: Whether the source is a table in memory.
    """

    def __init__(
        self,
        queue: BlockQueue,
        keys: KeyBlocks,
        decoder: Any,
        rules: Rules,
    ) -> None:
        self._queue = queue
        self._keys = keys
        # None if the queue reads batches of a table.
        self._decoder = decoder
        self.is_table = decoder is None
        self._rules = rules

    def batch(
        self, position: int, count: int, alloc: Alloc | None
    ) -> tuple[Any, Int64Array] | list[bytes]:
        """Return the batch of `count` records from `position` on, and their keys.

        Returns a list of undecoded records if the block decoder declines them or fails,
        so that the caller can decode them one by one and find the bad one.  The list is
        empty if a record cannot be read.
        """
        if self._queue.next_count(position) not in (0, count):
            self._queue.forget()  # The block ahead has another batch size.
        keys = self._keys.block(position, count)
        if self._decoder is None:
            batch = self._queue.take(position, keys, alloc)
            # With `alloc`, the rows of the next batch are written to its own slot.
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
        """Drop the blocks that were read ahead, since the stream moves elsewhere."""
        self._queue.forget()

    def close(self) -> None:
        """Drop the blocks that were read ahead, and end the threads."""
        self._queue.close()


def open_batches(
    source: Any,
    calls: Sequence[Any],
    keys: KeyBlocks,
    rules: Rules,
    options: ReadOptions,
    look_ahead: bool,
) -> NativeBatches | ColumnBatches | None:
    """Return an object that makes batches natively; None if the source has no way to.

    Args:
        source: The source of the records.
        calls: The functions that are called with each record before it is batched.
        keys: The keys of the records.
        rules: The tree rules of batches: "jax" or "plain".
        options: Threads that read ahead.
        look_ahead: Whether blocks are read ahead.
    """
    blocks: RecordBlocks | TableBlocks
    decoder = _decoder_of(source, calls)
    if decoder is not None:
        blocks = RecordBlocks(source, packed=True)
    elif calls or (columns := as_columns(source)) is None:
        return None
    elif isinstance(columns, TableSource) and columns.gathers:
        blocks = TableBlocks(columns, rules)
    else:
        return ColumnBatches(columns, keys, rules)
    queue = BlockQueue(blocks, keys, options, look_ahead)
    return NativeBatches(queue, keys, decoder, rules)


def batches_of(
    program: Program, keys: KeyBlocks, look_ahead: bool
) -> NativeBatches | ColumnBatches | None:
    """Return an object that makes the first batches of a program's stream, or None."""
    stage, batch = program.batch_stages[0], program.batch_stages[0].batch
    if not program.in_blocks or type(batch) is not transforms.Batch or batch.batch_fn:
        return None
    calls = [call for _, call, _ in stage.steps]
    rules, options = program.rules, program.read_options
    return open_batches(program.source, calls, keys, rules, options, look_ahead)


def make_batch_of(
    spec: Any, elements: list[Any], rules: Rules, alloc: Alloc | None, threads: int
) -> Any:
    """Return the batch of some elements.

    Args:
        spec: The `gristmill.transforms.Batch`, or one with its attributes.
        elements: The elements, at least one.
        rules: The tree rules of batches: "jax" or "plain".
        alloc: Makes the arrays of the batch; None for NumPy.
        threads: The maximum number of threads that compute deferred leaves.

    Raises:
        Exception: They do not fit together, or `batch_fn` raised it; it has a note.
    """
    try:
        if spec.batch_fn is not None:
            return spec.batch_fn(elements)
        return batching.make_batch(elements, rules=rules, alloc=alloc, threads=threads)
    except Exception as error:
        failure = as_failure(error, type(spec).__name__)
        if spec.batch_fn is not None:
            note = f"while batch_fn made a batch of {len(elements)} elements"
            failure.add_note(note)
        if failure is error:
            raise
        raise failure from error


def has_batches(source: Any, calls: Sequence[Any]) -> bool:
    """Return whether `open_batches` returns an object for a source and calls."""
    if calls:
        return _decoder_of(source, calls) is not None
    return as_columns(source) is not None


def _decoder_of(source: Any, calls: Sequence[Any]) -> Any:
    """Return the transform that decodes blocks of a source's records, or None.

    That is possible if a method of the transform is the only call before the batch.
    """
    if not (len(calls) == 1 and reads_natively(source) and source.serves_bytes):
        return None
    transform = getattr(calls[0], "__self__", None)
    return transform if getattr(transform, "decodes_blocks", False) else None
