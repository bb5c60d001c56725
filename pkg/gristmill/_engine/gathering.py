"""Gathers batches of a table's rows, by threads once gathering has proved slow.

A table in memory is gathered in the caller, at the speed of memory.  A table that
is a map of a file may wait for the disk at every row: then threads take the rows
of a batch in parallel, and batches after it ahead of need.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from typing import Any

from gristmill import _core
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill._engine.program import Program
from gristmill._engine.stream_keys import StreamKeys
from gristmill.options import ReadOptions
from gristmill.sources import TableSource

# Memory is faster than this by an order of magnitude, disks are slower by one.
SLOW_ROW_S = 5e-6
SLOW_BYTE_S = 1e-9
BATCHES_BETWEEN_PROBES = 256

KeysOf = Callable[[int, int], Int64Array]
Waiting = tuple[int, Int64Array, Any, list[_core.PendingGather]]


class Gathering:
    """Makes the batches of one stream straight from a table.

    Args:
        table: Where rows are taken from.
        rules: Order of the names of a batch, see `TableSource.gather`.
        options: Threads and look-ahead; 0 of either gathers in the caller.
        keys_of: Called with (position, count), returns row numbers.
        length: Positions of the stream.
        look_ahead: Whether batches after the one asked for may be made.

    Not thread-safe.
    """

    def __init__(
        self,
        table: TableSource,
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
        self._threads = int(options.num_threads)
        ahead = int(options.prefetch_buffer_size)
        self._ahead = ahead if look_ahead else 0
        self._allowed = self._threads > 0 and ahead > 0 and table.contiguous
        self._slow_row_s = SLOW_ROW_S + table.row_bytes * SLOW_BYTE_S
        self._until_probe = 0
        self._pool: _core.Pool | None = None
        self._waiting: collections.deque[Waiting] = collections.deque()

    def batch(
        self, position: int, count: int, alloc: Alloc | None
    ) -> tuple[Any, Int64Array]:
        """The batch of rows at `position`, position + 1, ... and their numbers."""
        if self._waiting and self._waiting[0][0] != position:
            self.forget()
        if not self._waiting:
            if self._until_probe == 0:
                return self._by_caller(position, count, alloc)
            self._begin(position, count, alloc)
        if alloc is None:
            self._look_ahead(count)
        _, keys, batch, pending = self._waiting.popleft()
        for gather in pending:
            gather.wait()
        return batch, keys

    def forget(self) -> None:
        """Drop what was gathered ahead: the stream goes on from somewhere else."""
        self._waiting.clear()

    def close(self) -> None:
        """Drop what was gathered ahead, and end the threads."""
        self.forget()
        self._pool = None

    def _by_caller(
        self, position: int, count: int, alloc: Alloc | None
    ) -> tuple[Any, Int64Array]:
        keys = self._keys_of(position, count)
        began = time.perf_counter()
        batch = self._table.gather(keys, alloc, self._rules)
        taken = time.perf_counter() - began
        if taken > count * self._slow_row_s and self._allowed:
            self._until_probe = BATCHES_BETWEEN_PROBES
        return batch, keys

    def _begin(self, position: int, count: int, alloc: Alloc | None) -> None:
        if self._pool is None:
            self._pool = _core.Pool(self._threads)
        keys = self._keys_of(position, count)
        batch, pending = self._table.begin_gather(keys, self._pool, alloc, self._rules)
        self._waiting.append((position, keys, batch, pending))
        self._until_probe -= 1

    def _look_ahead(self, count: int) -> None:
        batches = max(1, self._ahead // count) if self._ahead else 0
        while len(self._waiting) <= batches and self._until_probe:
            last, keys, _, _ = self._waiting[-1]
            position = last + len(keys)
            if position >= self._length:
                break
            self._begin(position, min(count, self._length - position), None)


def open_gathering(program: Program, stream: int, look_ahead: bool) -> Gathering | None:
    """How whole batches are gathered, where a program's can be."""
    first, source = program.levels[0], program.source
    plain = not first.steps and first.batch is not None and first.batch.make is None
    if not (plain and program.in_blocks and isinstance(source, TableSource)):
        return None
    if not source.gathers:
        return None
    return Gathering(
        source,
        rules=program.rules,
        options=program.read_options,
        keys_of=StreamKeys(program, stream).block,
        length=program.stream_length(stream),
        look_ahead=look_ahead,
    )
