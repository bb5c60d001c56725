"""Reads blocks of records in advance, with threads.

Native readers release the GIL, so threads read the next blocks while the caller's
Python code works on this one.  As many threads as there are cores read and decompress
files.  The caller reads a table in memory.  If reads block, `ReadOptions.num_threads`
threads read.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import math
from typing import Any

import numpy as np

from gristmill import _core
from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.blocks import Finish, RecordBlocks, TableBlocks
from gristmill._engine.program import Program
from gristmill._engine.read_ahead import ReadAheadPlan
from gristmill._engine.reading import Reading, ReadResult
from gristmill._engine.slow_probe import (
    BLOCKS_BETWEEN_PROBES,
    SlowProbe,
    Trial,
    read_timed,
)
from gristmill._engine.stream import NO_KEYS
from gristmill._engine.stream_keys import KeyBlocks, StreamKeys
from gristmill.errors import CorruptRecord
from gristmill.options import ReadOptions
from gristmill.sources._record_source import RecordSource, reads_natively

# The limit for records that are read ahead, by the mean size of the last block's.
MAX_AHEAD_BYTES = 256 << 20
# Records that are read together if the caller requests fewer.
MIN_BLOCK = 64


class BlockQueue:
    """Blocks of one stream's records that are read or being read.

    If `options` have 0 threads or a prefetch buffer of 0, the caller reads.  If
    `look_ahead` is False, nothing is read ahead.  Not thread-safe: one thread calls the
    methods, and the threads of the pool only read.

    Far blocks are read by a `ReadAheadPlan` and are never probed.  For others, probes
    measure some blocks to choose the number of threads.
    """

    def __init__(
        self,
        blocks: RecordBlocks | TableBlocks,
        keys: KeyBlocks,
        options: ReadOptions,
        look_ahead: bool,
    ) -> None:
        self._blocks = blocks
        self._keys = keys
        threads, ahead = int(options.num_threads), int(options.prefetch_buffer_size)
        allowed = ahead > 0 and blocks.allows_threads
        # The number of records to read ahead.
        self._ahead = ahead if look_ahead and threads and allowed else 0
        self._threads_if_slow = threads if allowed else 0
        max_if_fast = min(threads, blocks.threads_if_fast)
        self._threads_if_fast = max_if_fast if self._ahead else 0
        # The threads that read the next blocks; 0 if the caller reads them.
        self._threads = self._threads_if_fast
        # The first block sets `slow_s`, by its size.
        self._probe = SlowProbe(math.inf, 1, BLOCKS_BETWEEN_PROBES)
        # The mean size of a record of the last block that was measured, at least 1.
        self._record_bytes = 1.0
        self._plan = (
            ReadAheadPlan(keys, self._ahead) if blocks.far and self._ahead else None
        )
        self._pool: _core.Pool | None = None
        # Each block that is being read: its position, its keys, and the call that waits
        # for it.
        self._blocks_ahead: collections.deque[tuple[int, Int64Array, Finish]] = (
            collections.deque()
        )

    def take(self, position: int, keys: Int64Array, alloc: Alloc | None = None) -> Any:
        """Return the block at `position` that was begun, or read the block of `keys`.

        A block that was begun earlier may have another number of records, see
        `next_count`, and does not use `alloc`.

        Raises:
            Exception: A read raised it.  The block is dropped.
        """
        if self._blocks_ahead and self._blocks_ahead[0][0] != position:
            self.forget()
        if not self._blocks_ahead:
            probe = self._probe
            if probe.until_probe == 0 and self._plan is None:
                return self._read_probed(keys, alloc)
            if not self._threads:
                probe.until_probe -= 1
                return self._blocks.read(keys, alloc)
            self._begin(position, keys, alloc)
        _, keys, finish = self._blocks_ahead.popleft()
        block = finish()
        if self._plan is not None:
            self._plan.record_bytes = self._blocks.nbytes(block) / max(1, len(keys))
        return block

    def next_count(self, position: int) -> int:
        """Return the number of records of the block begun at `position`, or 0."""
        if self._blocks_ahead and self._blocks_ahead[0][0] == position:
            return len(self._blocks_ahead[0][1])
        return 0

    def look_ahead(self, position: int, block: int) -> None:
        """Begin to read blocks, as far ahead of `position` as the options allow.

        A block has `block` records, or fewer if the options do not allow more and
        blocks may be cut.
        """
        if not (self._ahead and self._threads):
            return
        if self._plan is not None:
            self._look_far_ahead(self._plan, position, block)
            return
        max_ahead = min(self._ahead, max(1, int(MAX_AHEAD_BYTES / self._record_bytes)))
        end = min(position + max_ahead, self._keys.length)
        if not self._blocks.whole:
            block = min(block, max_ahead)
        if self._blocks_ahead:
            last_position, keys, _ = self._blocks_ahead[-1]
            position = last_position + len(keys)
        # Stop before a block that `take` has to probe.
        while position < end and self._probe.until_probe:
            keys = self._keys.block(position, min(block, self._keys.length - position))
            self._begin(position, keys, None)
            position += len(keys)

    def _look_far_ahead(self, plan: ReadAheadPlan, position: int, block: int) -> None:
        end = min(plan.end_position(position), self._keys.length)
        if self._blocks_ahead:
            last_position, keys, _ = self._blocks_ahead[-1]
            position = last_position + len(keys)
        while position < end:
            count = block if self._blocks.whole else plan.block_size(position, block)
            keys = self._keys.block(position, min(count, self._keys.length - position))
            self._begin(position, keys, None)
            position += len(keys)

    def start(self, position: int, block: int) -> None:
        """Begin to read blocks like `look_ahead`, before the first read."""
        if self._plan is not None and isinstance(self._blocks, RecordBlocks):
            keys = self._keys.block(position, min(block, self._keys.length - position))
            self._plan.record_bytes = self._blocks.mean_bytes(keys)
        if self._threads:
            # `look_ahead` begins no blocks while the next read must be measured, so
            # set the count for the call.
            probe = self._probe
            count, probe.until_probe = probe.until_probe, probe.interval
            self.look_ahead(position, block)
            probe.until_probe = count

    def forget(self) -> None:
        """Drop the blocks that were read ahead, since the stream moves elsewhere."""
        self._blocks_ahead.clear()

    def close(self) -> None:
        """Drop the blocks that were read ahead, and end the threads."""
        self.forget()
        self._pool = None

    def _read_probed(self, keys: Int64Array, alloc: Alloc | None) -> Any:
        """Read a block, and determine whether reads block.

        If blocks can be joined, the caller may measure the first record alone.  Then
        threads can read the others if it waits.
        """
        waits = self._probe.waits
        if not self._blocks.can_join or waits is None:
            return self._read_here(keys, alloc)
        if waits:
            return self._try_threads(keys, alloc)
        if len(keys) == 1:
            return self._read_here(keys, alloc)
        first, waits = self._read_timed(keys[:1], None)
        read = self._try_threads if waits else self._read_here
        return self._blocks.join(first, read(keys[1:], None))

    def _read_here(self, keys: Int64Array, alloc: Alloc | None) -> Any:
        """Read in the caller; choose who reads next by the time that this waited."""
        block, waits = self._read_timed(keys, alloc)
        slow, fast = self._threads_if_slow, self._threads_if_fast
        self._use_threads(slow if waits else fast)
        self._probe.decide(waits)
        return block

    def _try_threads(self, keys: Int64Array, alloc: Alloc | None) -> Any:
        """Read with as many threads as help if reads block, and check whether they do.

        If that remains unknown, the caller reads the next block to find out.
        """
        self._use_threads(self._threads_if_slow)
        trial = Trial()
        block = self._blocks.begin(keys, alloc, self._ensure_pool())()
        trial.end()
        self._update_slow_s(block, keys)
        # If threads were quick, the caller may be as quick: False becomes None.
        self._probe.decide(trial.waits(self._probe.slow_s) or None)
        return block

    def _read_timed(self, keys: Int64Array, alloc: Alloc | None) -> tuple[Any, bool]:
        """Read in the caller; return the block, and whether threads would help."""
        read = functools.partial(self._blocks.read, keys, alloc)
        block, _, waited_s = read_timed(read)
        self._update_slow_s(block, keys)
        return block, waited_s > self._probe.slow_s and self._threads_if_slow > 0

    def _update_slow_s(self, block: Any, keys: Int64Array) -> None:
        """Set the time from which a read of such a block counts as slow."""
        nbytes, count = self._blocks.nbytes(block), len(keys)
        self._record_bytes = max(1.0, nbytes / max(1, count))
        self._probe.slow_s = (
            count * self._blocks.slow_record_s + nbytes * self._blocks.slow_byte_s
        )

    def _use_threads(self, threads: int) -> None:
        """Let this number of threads read the next blocks; the caller, if it is 0."""
        if threads != self._threads:
            self._threads, self._pool = threads, None

    def _ensure_pool(self) -> _core.Pool:
        if self._pool is None:
            self._pool = _core.Pool(self._threads)
        return self._pool

    def _begin(self, position: int, keys: Int64Array, alloc: Alloc | None) -> None:
        """Begin to read a block in the pool, and append it to the queue."""
        finish = self._blocks.begin(keys, alloc, self._ensure_pool())
        self._blocks_ahead.append((position, keys, finish))
        if self._plan is None:
            self._probe.until_probe -= 1


class BlockReading:
    """Reads blocks of one stream's records.  See `reading.Reading`.  Not thread-safe.

    If a block cannot be read as a whole, it is read in parts, each when it is due.  If
    a part cannot be read, its records are read one by one.  That stops at a record that
    fails because of the file or its server, since later ones would fail, too.
    """

    def __init__(
        self, source: RecordSource[Any], queue: BlockQueue, keys: StreamKeys
    ) -> None:
        self._source = source
        self._queue = queue
        self._keys = keys
        # The rest of the last block, and its position.  Failed reads are None in it.
        self._ready: list[Any] = []
        self._ready_at = 0
        # The exceptions of failed reads, by position.
        self._failures: dict[int, Exception] = {}
        # The keys after `_ready` of a block that cannot be read as a whole.
        self._unread: Int64Array = NO_KEYS

    def read(self, position: int, keys: Any) -> ReadResult:
        """Read the records at `position`, position + 1, ...

        Returns the elements up to the first failed read, and its exception.
        """
        count = len(keys)
        elements: list[Any] = []
        while len(elements) < count:
            at, wanted = position + len(elements), count - len(elements)
            if not 0 <= at - self._ready_at < len(self._ready):
                self._load(at, np.asarray(keys)[-wanted:])
            self._drop_until(at)
            failure = self._failures.pop(at, None)
            if failure is not None:
                # Read it again if it is requested again: an exception is raised once.
                self._drop_until(at + 1)
                return ReadResult(elements, failure)
            failed_positions = (failed for failed in self._failures if failed > at)
            elements += self._ready[: min([at + wanted, *failed_positions]) - at]
            self._drop_until(position + len(elements))
        loaded_end = self._ready_at + len(self._ready) + len(self._unread)
        self._queue.look_ahead(max(position + count, loaded_end), max(count, MIN_BLOCK))
        return ReadResult(elements, None)

    def offer(self, position: int, records: list[bytes]) -> None:
        """Take records from `position` on that were read already."""
        self._drop()
        self._ready = [*records]
        self._ready_at = position

    def start(self, position: int) -> None:
        self._queue.start(position, MIN_BLOCK)

    def forget(self) -> None:
        self._queue.forget()
        self._drop()

    def close(self) -> None:
        self._queue.close()
        self._drop()

    def _drop(self) -> None:
        self._ready = []
        self._failures.clear()
        self._unread = NO_KEYS

    def _drop_until(self, position: int) -> None:
        del self._ready[: position - self._ready_at]
        self._ready_at = position

    def _load(self, position: int, keys: Int64Array) -> None:
        """Load the block at `position`: the queue's next one, or that of `keys`.

        If the last block was left in parts, loads its next part instead.  Stores the
        exceptions of failed reads in `_failures`.
        """
        loaded_end = self._ready_at + len(self._ready)
        unread = self._unread[max(0, position - loaded_end) :]
        self._drop()
        self._ready_at = position
        if position < loaded_end or not len(unread):
            count = self._queue.next_count(position)  # `take` removes the block.
            try:
                self._ready = self._queue.take(position, keys)
                if not self._source.serves_bytes:
                    keys = self._keys.block(position, count) if count else keys
                    self._ready = self._source.elements(keys, self._ready)
                return
            except Exception:
                unread = self._keys.block(position, count) if count else keys
            if len(unread) <= MIN_BLOCK:
                self._read_singly(position, unread)
                return
        self._unread = unread[MIN_BLOCK:]
        part = unread[:MIN_BLOCK]
        with contextlib.suppress(Exception):
            self._ready = self._source.read_block(part)
            return
        self._read_singly(position, part)

    def _read_singly(self, position: int, keys: Int64Array) -> None:
        """Read the records of a part with a bad record one by one.

        Goes on after a CorruptRecord, which is about one record.  After any other error
        the rest of the part goes to `_unread`.
        """
        for number, key in enumerate(keys.tolist()):
            element = None
            try:
                element = self._source[key]
            except CorruptRecord as error:
                self._failures[position + number] = error
            except Exception as error:
                self._failures[position + number] = error
                self._ready.append(None)
                self._unread = np.concatenate([keys[number + 1 :], self._unread])
                return
            self._ready.append(element)


def open_reading(
    program: Program, keys: StreamKeys, look_ahead: bool
) -> Reading | BlockReading:
    """Return the object that reads the records of a program's stream.

    Both classes have ``read``, ``start``, ``forget`` and ``close``; only the one of
    `Reading` returns None.
    """
    source, options = program.source, program.read_options
    if not (program.in_blocks and reads_natively(source)):
        return Reading(source, options, keys.source_keys, keys.length, look_ahead)
    queue = BlockQueue(RecordBlocks(source), keys, options, look_ahead)
    return BlockReading(source, queue, keys)
