"""Blocks that a `BlockQueue` reads: records of files, or rows of a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill import _core
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill.sources import TableSource
from gristmill.sources._record_source import RecordSource

# Waits for a block that is being read, and returns it.
Finish = Callable[[], Any]


class RecordBlocks:
    """Reads records of files: a block is a list of records, or packed by `read_many`.

    A packed block of k records is their bytes in one array, and offsets of shape
    (k + 1,): record i has the bytes from offset i to offset i + 1.

    Attributes:
        allows_threads: Whether threads can read.
        whole: Whether blocks must not be cut.
        can_join: Whether two blocks can be joined.  If so, a probe begins with the
            first record alone.
        far: Whether reads wait for a network, regardless of what probes measure.
        threads_if_fast: The number of threads that read if reads do not block.
        slow_record_s, slow_byte_s: A read is slow, so more threads read, if it waits
            for longer than the sum of these times for each record and each byte.
    """

    allows_threads = True
    can_join = True
    far = False
    # Decoding is faster than this by an order of magnitude, disks are slower by one.
    slow_record_s = 30e-6
    slow_byte_s = 5e-9
    # More threads would evict each other's data from the caches.
    threads_if_fast = os.cpu_count() or 1

    def __init__(self, source: RecordSource[Any], packed: bool = False) -> None:
        self._reader: Any = source.reader
        self._item_bytes = source.item_bytes
        self.whole = packed
        self.far = source.is_far

    def read(self, keys: Int64Array, alloc: Alloc | None) -> Any:
        """Return the block of some keys; its arrays come from `alloc` if possible."""
        return self._reader.read_many(keys, packed=self.whole)

    def begin(self, keys: Int64Array, alloc: Alloc | None, pool: _core.Pool) -> Finish:
        """Begin to read a block with a pool's threads; return the call that waits."""
        # More parts than threads even out the load.
        parts = 2 * pool.threads
        return _core.PendingRead(
            pool, self._reader, keys, packed=self.whole, parts=parts
        ).wait

    def nbytes(self, block: Any) -> int:
        """Return the size of a block's records, in bytes."""
        if self.whole:
            return int(block[0].nbytes)
        return self._item_bytes * sum(map(len, block))

    def join(self, first: Any, second: Any) -> Any:
        """Return the records of two blocks as one block."""
        if not self.whole:
            return first + second
        (first_data, first_offsets), (second_data, second_offsets) = first, second
        data = np.concatenate([first_data, second_data])
        later_offsets = second_offsets[1:] + first_offsets[-1]
        return data, np.concatenate([first_offsets, later_offsets])

    def mean_bytes(self, keys: Int64Array) -> float:
        """Return the mean size of some records; 0 if it is not known before a read."""
        if not self._reader.knows_sizes or not len(keys):
            return 0.0
        return max(1.0, float(self._reader.sizes(keys).mean()))


class TableBlocks:
    """Makes batches of a table's rows: a block is a batch.  See `RecordBlocks`."""

    whole = True
    can_join = False
    far = False
    # Memory is faster than this by an order of magnitude, disks are slower by one.
    slow_record_s = 5e-6
    slow_byte_s = 1e-9
    threads_if_fast = 0

    def __init__(self, table: TableSource, rules: Rules) -> None:
        self._table = table
        self._rules = rules
        self.allows_threads = table.contiguous

    def read(self, keys: Int64Array, alloc: Alloc | None) -> Any:
        return self._table.gather(keys, alloc, self._rules)

    def begin(self, keys: Int64Array, alloc: Alloc | None, pool: _core.Pool) -> Finish:
        batch, pending = self._table.begin_gather(keys, pool, alloc, self._rules)

        def finish() -> Any:
            for gather in pending:
                gather.wait()
            return batch

        return finish

    def join(self, first: Any, second: Any) -> Any:
        """Raise NotImplementedError, because `can_join` is False."""
        raise NotImplementedError

    def nbytes(self, batch: Any) -> int:
        columns = batch.values() if isinstance(batch, dict) else [batch]
        return sum(column.nbytes for column in columns)
