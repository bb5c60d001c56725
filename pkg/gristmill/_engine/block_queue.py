"""Reads blocks of records of record files, by threads and ahead of need.

The native reader needs no GIL, so threads read and decompress the next blocks while
the caller's Python code works on this one.  Threads of a block are as many as there
are cores, or `ReadOptions.num_threads` where reading proves to wait for something.
"""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable
from typing import Any

from gristmill import _core
from gristmill._base.types import Int64Array
from gristmill.options import ReadOptions
from gristmill.sources._record_source import RecordSource

# Decoding is faster than this by an order of magnitude, disks are slower by one.
SLOW_RECORD_S = 30e-6
SLOW_BYTE_S = 5e-9
BLOCKS_BETWEEN_PROBES = 256
MAX_AHEAD_BYTES = 256 << 20

KeysOf = Callable[[int, int], Int64Array]


class BlockQueue:
    """Blocks of one stream's records that are read or being read.

    Args:
        source: Whose reader reads.
        options: Threads and look-ahead; 0 of either reads in the caller.
        keys_of: Called with (position, count), returns the keys there.
        length: Positions of the stream; nothing past it is read.
        look_ahead: Whether records after those asked for may be read, too.
        packed: Whether records are wanted as ``RecordReader.read_many`` packs them,
            rather than as a list of bytes.

    Not thread-safe.
    """

    def __init__(
        self,
        source: RecordSource,
        *,
        options: ReadOptions,
        keys_of: KeysOf,
        length: int,
        look_ahead: bool,
        packed: bool = False,
    ) -> None:
        self._source = source
        self._keys_of = keys_of
        self._length = length
        self._packed = packed
        self._threads = int(options.num_threads)
        ahead = int(options.prefetch_buffer_size)
        self._allowed = self._threads > 0 and ahead > 0
        self._ahead = ahead if look_ahead and self._allowed else 0
        self._cores = min(self._threads, os.cpu_count() or 1)
        self._slow = False
        self._until_probe = 0
        self._record_bytes = 1.0
        self._pool: _core.Pool | None = None
        self._waiting: collections.deque[tuple[int, Int64Array, Any]] = (
            collections.deque()
        )

    def take(self, position: int, keys: Int64Array) -> Any:
        """The records of the block that waits at `position`, else those of `keys`.

        Raises:
            Exception: What a read raised.  The block is gone.
        """
        if self._waiting and self._waiting[0][0] != position:
            self._waiting.clear()
        if not self._waiting:
            if self._until_probe == 0:
                return self._probe(keys)
            if not (self._ahead or self._slow):
                self._until_probe -= 1
                return self._read(keys)
            self._begin(position, keys)
        _, _, pending = self._waiting.popleft()
        return pending.wait()

    def next_count(self, position: int) -> int:
        """Records in the block that waits at `position`; 0 if none does."""
        if self._waiting and self._waiting[0][0] == position:
            return len(self._waiting[0][1])
        return 0

    def look_ahead(self, position: int, block: int) -> None:
        """Begin to read blocks, as far ahead of `position` as the options allow.

        Args:
            position: Where the next block will be asked for.
            block: Records of one block; of fewer where the options allow no more,
                unless they are wanted packed.
        """
        if not self._ahead:
            return
        most = min(self._ahead, max(1, int(MAX_AHEAD_BYTES / self._record_bytes)))
        end = min(position + most, self._length)
        if not self._packed:
            block = min(block, most)
        if self._waiting:
            last, keys, _ = self._waiting[-1]
            position = last + len(keys)
        while position < end and self._until_probe:
            keys = self._keys_of(position, min(block, self._length - position))
            self._begin(position, keys)
            position += len(keys)

    def start(self, position: int, block: int) -> None:
        """As `look_ahead`, though nothing has been read yet."""
        self._until_probe = self._until_probe or BLOCKS_BETWEEN_PROBES
        self.look_ahead(position, block)

    def forget(self) -> None:
        """Drop what was read ahead: the stream goes on from somewhere else."""
        self._waiting.clear()

    def close(self) -> None:
        """Drop what was read ahead, and end the threads."""
        self.forget()
        self._pool = None

    def _read(self, keys: Int64Array) -> Any:
        reader = self._source.reader
        return (
            reader.read_many(keys, packed=True)
            if self._packed
            else reader.read_many(keys)
        )

    def _probe(self, keys: Int64Array) -> Any:
        """Read in the caller, and find out how slow that is."""
        began = time.perf_counter()
        records = self._read(keys)
        taken = time.perf_counter() - began
        nbytes = records[0].nbytes if self._packed else sum(map(len, records))
        self._record_bytes = max(1.0, nbytes / max(1, len(keys)))
        slow_s = len(keys) * SLOW_RECORD_S + nbytes * SLOW_BYTE_S
        slow = self._allowed and taken > slow_s
        if slow != self._slow:
            self._slow, self._pool = slow, None
        self._until_probe = BLOCKS_BETWEEN_PROBES
        return records

    def _begin(self, position: int, keys: Int64Array) -> None:
        # More threads than cores would drive each other's decoders from the caches;
        # more parts than threads even out what they take.
        threads = self._threads if self._slow else self._cores
        if self._pool is None:
            self._pool = _core.Pool(threads)
        pending = _core.PendingRead(
            self._pool,
            self._source.reader,
            keys,
            packed=self._packed,
            parts=threads if self._slow else 2 * threads,
        )
        self._waiting.append((position, keys, pending))
        self._until_probe -= 1
