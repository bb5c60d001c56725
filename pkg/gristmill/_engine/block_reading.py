"""Reads blocks of records of record files, by threads and ahead of need.

The native reader needs no GIL, so threads read and decompress the next blocks while
the caller's Python code works on this one.  Threads of a block are as many as there
are cores, or `ReadOptions.num_threads` where reading proves to wait for something.
"""

from __future__ import annotations

import collections
import functools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill import _core
from gristmill._engine.program import Program
from gristmill._engine.reading import Reading, read_each
from gristmill._record_source import RecordSource, reads_natively
from gristmill._types import Int64Array
from gristmill.options import ReadOptions

# Decoding is faster than this by an order of magnitude, disks are slower by one.
SLOW_RECORD_S = 30e-6
SLOW_BYTE_S = 5e-9
BLOCKS_BETWEEN_PROBES = 256
MIN_BLOCK = 64
MAX_AHEAD_BYTES = 256 << 20

KeysOf = Callable[[int, int], Int64Array]
Block = tuple[int, Int64Array, _core.PendingRead]


class BlockReading:
    """Reads blocks of one stream's records.  See `reading.Reading`.

    Args:
        source: Whose reader reads.
        options: Threads and look-ahead; 0 of either reads in the caller.
        keys_of: Called with (position, count), returns the keys there.
        length: Positions of the stream; nothing past it is read.
        look_ahead: Whether records after those asked for may be read, too.
    """

    def __init__(
        self,
        source: RecordSource,
        options: ReadOptions,
        keys_of: KeysOf,
        length: int,
        look_ahead: bool,
    ) -> None:
        self._source = source
        self._keys_of = keys_of
        self._length = length
        self._threads = int(options.num_threads)
        ahead = int(options.prefetch_buffer_size)
        self._allowed = self._threads > 0 and ahead > 0
        self._ahead = ahead if look_ahead and self._allowed else 0
        self._parts = min(self._threads, os.cpu_count() or 1)
        self._slow = False
        self._until_probe = 0
        self._record_bytes = 1.0
        self._pool: _core.Pool | None = None
        self._waiting: collections.deque[Block] = collections.deque()
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
            at = position + len(elements)
            found, failure = self._next_block(at, np.asarray(keys)[len(elements) :])
            wanted = count - len(elements)
            self._ready, self._ready_at = found[wanted:], at + wanted
            elements += found[:wanted]
            if failure is not None and len(elements) < count:
                return elements, failure
        self._look_ahead(position + count, count)
        return elements, None

    def start(self, position: int) -> None:
        """Begin to read ahead from `position`."""
        self._until_probe = self._until_probe or BLOCKS_BETWEEN_PROBES
        self._look_ahead(position, MIN_BLOCK)

    def forget(self) -> None:
        """Drop what was read ahead: the stream goes on from somewhere else."""
        self._waiting.clear()
        self._ready = []

    def close(self) -> None:
        """Drop what was read ahead, and end the threads."""
        self.forget()
        self._pool = None

    def _take_ready(self, position: int, count: int) -> list[Any]:
        offset = position - self._ready_at
        if not 0 <= offset < len(self._ready):
            return []
        return self._ready[offset : offset + count]

    def _next_block(
        self, position: int, keys: Int64Array
    ) -> tuple[list[Any], Exception | None]:
        """Records from `position` on: a block that waits there, or `keys`."""
        if self._waiting and self._waiting[0][0] != position:
            self._waiting.clear()
        if not self._waiting and self._until_probe == 0:
            return self._by_caller(keys)
        if not self._waiting:
            if not (self._ahead or self._slow):
                self._until_probe -= 1
                return self._read(keys, lambda: self._source.reader.read_many(keys))
            self._begin(position, keys)
        _, keys, pending = self._waiting.popleft()
        return self._read(keys, pending.wait)

    def _by_caller(self, keys: Int64Array) -> tuple[list[Any], Exception | None]:
        """Read in the caller, and find out how slow that is."""
        began = time.perf_counter()
        found = self._read(keys, lambda: self._source.reader.read_many(keys))
        taken = time.perf_counter() - began
        nbytes = sum(map(len, found[0]))
        self._record_bytes = max(1.0, nbytes / len(keys))
        slow_s = len(keys) * SLOW_RECORD_S + nbytes * SLOW_BYTE_S
        self._slow = self._allowed and taken > slow_s
        self._until_probe = BLOCKS_BETWEEN_PROBES
        return found

    def _read(
        self, keys: Int64Array, read: Callable[[], list[Any]]
    ) -> tuple[list[Any], Exception | None]:
        try:
            return read(), None
        except Exception:
            # One by one: those before the record that failed are good.
            return read_each(self._source, keys.tolist())

    def _begin(self, position: int, keys: Int64Array) -> None:
        if self._pool is None:
            self._pool = _core.Pool(self._threads)
        parts = self._threads if self._slow else self._parts
        pending = _core.PendingRead(self._pool, self._source.reader, keys, parts=parts)
        self._waiting.append((position, keys, pending))
        self._until_probe -= 1

    def _look_ahead(self, position: int, count: int) -> None:
        most = min(self._ahead, int(MAX_AHEAD_BYTES / self._record_bytes))
        if most == 0:
            return
        block = max(count, min(MIN_BLOCK, most))
        end = min(position + most, self._length)
        if self._waiting:
            last, keys, _ = self._waiting[-1]
            reached = last + len(keys)
        else:
            reached = max(position, self._ready_at + len(self._ready))
        while reached < end and self._until_probe:
            keys = self._keys_of(reached, min(block, self._length - reached))
            self._begin(reached, keys)
            reached += len(keys)


def open_reading(
    program: Program, stream: int, look_ahead: bool
) -> Reading | BlockReading:
    """How the records of a program's stream are read."""
    source, length = program.source, program.stream_length(stream)
    if program.in_blocks and reads_natively(source):
        blocks_of = functools.partial(program.key_block, stream)
        return BlockReading(source, program.read_options, blocks_of, length, look_ahead)
    keys_of = functools.partial(program.source_keys, stream)
    return Reading(source, program.read_options, keys_of, length, look_ahead)
