"""Gathers batches of a table's rows, large ones ahead of need by threads."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from typing import Any

from gristmill import _core, sources
from gristmill._types import Alloc, Int64Array, Rules
from gristmill.options import ReadOptions

# Handing a smaller batch to a thread costs more than gathering it.
LARGE_BATCH_BYTES = 1 << 20
MOST_BATCHES_AHEAD = 4

KeysOf = Callable[[int, int], Int64Array]
Waiting = tuple[int, Int64Array, Any, list[_core.PendingGather]]


class Gathering:
    """Makes the batches of one stream straight from a table.

    Args:
        table: Where rows are taken from.
        rules: Order of the names of a batch, see `sources.TableSource.gather`.
        options: Threads and look-ahead; 0 of either gathers in the caller.
        keys_of: Called with (position, count), returns row numbers.
        length: Positions of the stream.
        look_ahead: Whether batches after the one asked for may be made.

    Not thread-safe.
    """

    def __init__(
        self,
        table: sources.TableSource,
        *,
        rules: Rules,
        options: ReadOptions,
        keys_of: KeysOf,
        length: int,
        look_ahead: bool,
    ) -> None:
        self._table = table
        self._rules = rules
        self._keys_of = keys_of
        self._length = length
        self._threads = min(int(options.num_threads), os.cpu_count() or 1)
        wanted = look_ahead and options.num_threads and options.prefetch_buffer_size
        self._records_ahead = int(options.prefetch_buffer_size) if wanted else 0
        self._pool: _core.Pool | None = None
        self._waiting: collections.deque[Waiting] = collections.deque()

    def batch(
        self, position: int, count: int, alloc: Alloc | None
    ) -> tuple[Any, Int64Array]:
        """The batch of rows at `position`, position + 1, ... and their numbers."""
        if alloc is not None or not self._looks_ahead(count):
            keys = self._keys_of(position, count)
            return self._table.gather(keys, alloc, self._rules), keys
        self._top_up(position, count)
        _, keys, batch, pending = self._waiting.popleft()
        for gather in pending:
            gather.wait()
        return batch, keys

    def forget(self) -> None:
        """Drop what was gathered ahead: the stream goes on from somewhere else."""
        self._waiting.clear()

    def _looks_ahead(self, count: int) -> bool:
        large = self._table.row_bytes * count >= LARGE_BATCH_BYTES
        return large and self._records_ahead > 0 and self._table.contiguous

    def _top_up(self, position: int, count: int) -> None:
        if self._waiting and self._waiting[0][0] != position:
            self.forget()
        if self._pool is None:
            self._pool = _core.Pool(self._threads)
        ahead = min(max(1, self._records_ahead // count), MOST_BATCHES_AHEAD)
        if self._waiting:
            last, keys, _, _ = self._waiting[-1]
            position = last + len(keys)
        while len(self._waiting) <= ahead and position < self._length:
            size = min(count, self._length - position)
            keys = self._keys_of(position, size)
            batch, pending = self._table.gather_ahead(keys, self._pool, self._rules)
            self._waiting.append((position, keys, batch, pending))
            position += size
