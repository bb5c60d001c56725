"""Reads records with threads if reads block.

If the source returns at once, or computes, the caller reads: threads would only share
its processor.  If the source waits for a network or a disk, `ReadOptions.num_threads`
threads read up to `ReadOptions.prefetch_buffer_size` records ahead.

From time to time, reads in the caller are measured to distinguish these cases: reads of
single records, or of blocks if the source has ``__getitems__``.  As soon as one of them
blocks, even before it has returned, threads read the next records on trial, see
`slow_probe`.

The caller always reads a source whose attribute `allows_threads` is False.  The order
of records does not depend on the threads.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from gristmill import _core
from gristmill._base import threads
from gristmill._base.types import Int64Array
from gristmill._engine.background import Background
from gristmill._engine.slow_probe import BLOCKS_BETWEEN_PROBES, SlowProbe
from gristmill._hot import cancellation
from gristmill._hot import run as hot_run
from gristmill._hot.block_call import BlockLengthError
from gristmill.options import ReadOptions

if TYPE_CHECKING:
    from concurrent.futures import Future

# A read that waits for longer is slow, see `SlowProbe`.
SLOW_READ_S = 100e-6
# Threads read the next records on trial if a read takes longer, before it returns.
LONG_READ_S = 1e-3
# The number of measured reads, of single records or of blocks, after which to decide.
PROBED_READS = 5
# The time after which the records of a block that were read are returned without the
# others.
MAX_BLOCK_DELAY_S = 5e-3

Keys = Int64Array | list[Any]
KeysOf = Callable[[int, int], Iterable[Any]]


class ReadResult(NamedTuple):
    """The elements up to a failed read, and its exception."""

    elements: list[Any]
    failure: Exception | None


# The position of the first of some consecutive records, and the keys of all of them.
_Records: TypeAlias = tuple[int, list[Any]]


def read_each(source: Any, keys: Iterable[Any]) -> ReadResult:
    """Return the elements up to the first failed read, and its exception."""
    elements: list[Any] = []
    try:
        for key in keys:
            cancellation.check()
            elements.append(source[key])
    except Exception as error:
        return ReadResult(elements, error)
    return ReadResult(elements, None)


def read_together(source: Any, keys: list[Any]) -> ReadResult | None:
    """Read records in one call, or if that fails, one by one to find the bad one.

    A failed call may have read some of them, and these are read again.  Returns None if
    the source returns a wrong number of elements.
    """
    try:
        elements: list[Any] | None = list(source.__getitems__(keys))
    except BlockLengthError as error:
        return ReadResult([], error)  # No single record is bad.
    except Exception:
        elements = None
    if elements is None:
        # Not in the `except` block, where that exception would become the context.
        return read_each(source, keys)  # This finds the bad record.
    return ReadResult(elements, None) if len(elements) == len(keys) else None


class Reading:
    """Reads blocks of one stream's records.

    Only one thread, the caller, may call the methods except for `close`, but several
    threads read `source`.

    Args:
        source: The source.
        options: No threads read if one of its numbers is 0.
        keys_of: Called with (position, count); returns the source's keys there, fewer
            if a sampler fails.  The watch's thread may call it, see `_following`.
        length: The number of records of the stream.
        look_ahead: Whether to read records before they are requested.
        min_block: The number of records that the caller reads together at least, if
            that many are requested.
    """

    def __init__(
        self,
        source: Any,
        options: ReadOptions,
        keys_of: KeysOf,
        length: int,
        look_ahead: bool,
        min_block: int = 1,
    ) -> None:
        self._source = source
        self._keys_of = keys_of
        self._length = length
        self._min_block = min_block
        self._threads = int(options.num_threads)
        self._looks_ahead = look_ahead
        self._ahead = int(options.prefetch_buffer_size) if look_ahead else 0
        enabled = options.num_threads > 0 and options.prefetch_buffer_size > 0
        self._allowed = enabled and getattr(source, "allows_threads", True)
        self._in_blocks = hot_run.reads_together(type(source))
        # Decides who reads: threads, if its `waits` is True or a `trial` is under way.
        self._probe = SlowProbe(SLOW_READ_S, PROBED_READS, BLOCKS_BETWEEN_PROBES)
        needs_named_threads = threads.reads_thread_name(source) or getattr(
            source, "reads_thread_name", False
        )
        if needs_named_threads:
            # Threads always read, as in Grain: their names affect what the source
            # returns.
            self._probe.waits, self._probe.until_probe = True, sys.maxsize
        # Records that may be read ahead during a trial.
        self._trial_ahead = self._threads
        # The records after those of the current read, while a watch waits for it.  If
        # the read is long, the watch's thread begins a trial and submits these records.
        self._following: _Records | None = None
        # Held by the watch's thread while it does that, and by the caller when it sets
        # `_following` to None.  At other times only the caller uses the fields, apart
        # from `close`.
        self._lock = threading.Lock()
        self._closed = False
        # The next three are also used by `close`, in any thread and without the lock:
        # each access of the dict is atomic, and a closed pool cancels later reads.
        self._pool: Background | None = None
        # The records that threads read, by position.
        self._futures: dict[int, Future[Any]] = {}
        # The position after the last record that was submitted to be read ahead.
        self._ahead_end = 0

    def read(self, position: int, keys: Keys) -> ReadResult | None:
        """Read the records at `position`, position + 1, ... or decline.

        Returns None if the caller should read: because the source does not block, or
        because its ``__getitems__`` returned a wrong number of elements.  Otherwise
        returns the elements up to the first failed read, and its exception.  If later
        reads are slow, returns only the first elements, at least one.
        """
        if not self._allowed:
            return None
        probe = self._probe
        if (count := probe.until_probe) and not (probe.waits or self._futures):
            probe.until_probe = count - 1
            return None
        key_list = keys.tolist() if isinstance(keys, np.ndarray) else keys
        if probe.trial is not None:
            probe.judge_trial()
        if self._futures or self._threads_read:
            return self._read_by_threads(position, key_list, [])
        return self._read_and_probe(position, key_list)

    @property
    def capacity(self) -> int:
        """The most records that may be read ahead; 0 while the caller reads."""
        probe = self._probe
        if self._futures or probe.waits or probe.trial is not None:
            return self._ahead
        return 0

    def ready(self, position: int) -> int:
        """Return the number of records read ahead, from `position` on without a gap."""
        count = 0
        while True:
            future = self._futures.get(position + count)
            if future is None or not future.done():
                return count
            count += 1

    def start(self, position: int) -> None:
        """Begin to read ahead from `position`, even if the source may not block."""
        if self._allowed and self._ahead:
            self._look_ahead(position)

    def probe_soon(self) -> None:
        """Measure the next read again, because something has changed."""
        if not self._probe.waits:
            self._probe.until_probe = 0

    def forget(self) -> None:
        """Drop the records that were read ahead, since the stream moves elsewhere."""
        # Copied: `close` may be called while another thread reads.
        for future in [*self._futures.values()]:
            future.cancel()
        self._futures.clear()
        self._ahead_end = 0

    def close(self) -> None:
        """Stop reading.  Any thread may call this; it does not wait for a read."""
        self._closed = True
        self.forget()
        if self._pool is not None:
            self._pool.close()

    def _read_and_probe(self, position: int, keys: list[Any]) -> ReadResult | None:
        """Read in the caller; after a read that waited, let threads read the rest."""
        probe = self._probe
        self._trial_ahead = self._threads
        elements: list[Any] = []
        # Without look-ahead, other workers compute units of this stream, too, and the
        # records of a unit should not wait for each other.
        together = self._in_blocks and self._looks_ahead
        max_count = len(keys) if together else self._min_block
        decided = False
        while len(elements) < len(keys) and not decided:
            remaining = keys[len(elements) :]
            count = min(len(remaining), max_count)
            result = self._watched_read(position + len(elements), remaining, count)
            if result is None:
                return None
            (new_elements, failure), waited_s = result
            elements += new_elements
            if failure is not None:
                return ReadResult(elements, failure)
            decided = probe.add_read(waited_s)
            if probe.record_s > MAX_BLOCK_DELAY_S or not self._looks_ahead:
                break
        remaining = keys[len(elements) :]
        if self._threads_read:
            return self._read_by_threads(position + len(elements), remaining, elements)
        rest: ReadResult | None
        if probe.record_s * len(remaining) > MAX_BLOCK_DELAY_S or not self._looks_ahead:
            rest = ReadResult([], None)
        elif self._in_blocks and remaining:
            rest = read_together(self._source, remaining)
        else:
            rest = read_each(self._source, remaining)
        if rest is None:
            return None
        return ReadResult(elements + rest.elements, rest.failure)

    def _watched_read(
        self, position: int, keys: list[Any], count: int
    ) -> tuple[ReadResult, float | None] | None:
        """Read and measure the first `count` records; see `SlowProbe.read_timed`."""
        following: _Records | None = None
        # After a trial without a result, the caller's reads decide.
        if self._probe.waits is not None:
            following = position + count, keys[count:]
        read_next = functools.partial(self._read_next_in_threads, following)
        # Calls `read_next` in its own thread if this thread still waits when the time
        # is up.
        watch = _core.Watch(read_next, waiting=True)
        self._following = following
        read_some = read_together if self._in_blocks and count > 1 else read_each
        read = functools.partial(read_some, self._source, keys[:count])
        watch.begin(LONG_READ_S)
        try:
            result, waited_s = self._probe.read_timed(read, count)
        finally:
            watch.end()
            with self._lock:
                self._following = None
        return None if result is None else (result, waited_s)

    def _read_next_in_threads(self, following: _Records | None, _: float) -> None:
        """Let threads read the next records; called in the watch's thread."""
        with self._lock:
            if following is None or following is not self._following:
                return  # The read has returned.
            position, keys = following
            self._probe.begin_trial()
            for number, key in enumerate(keys, position):
                self._futures[number] = self._submit(key)
            self._look_ahead(position + len(keys))

    @property
    def _threads_read(self) -> bool:
        return bool(self._probe.waits) or self._probe.trial is not None

    def _read_by_threads(
        self, position: int, keys: list[Any], elements: list[Any]
    ) -> ReadResult:
        """Read the records at `position`, ...; append them to `elements`.

        `elements` are the records just before these.  Returns only some of the records,
        at least one, if the next one is slow; keeps the other reads for the next call.
        """
        if self._pool is not None and self._pool.is_in_fork:
            # A fork has its parent's futures, but not the threads.
            self._futures.clear()
            self._pool = None
        futures = []
        for number, key in enumerate(keys, position):
            future = self._futures.pop(number, None)
            futures.append(self._submit(key) if future is None else future)
        probe = self._probe
        if probe.waits:
            probe.until_probe -= 1
            if not probe.until_probe:
                # Threads read already, so the trial may go as far ahead.
                self._trial_ahead = self._ahead
                probe.begin_trial()
        if self._threads_read:
            self._look_ahead(position + len(futures))
        for count, future in enumerate(futures):
            is_done = (
                not elements
                or future.done()
                or _is_done_within(future, MAX_BLOCK_DELAY_S)
            )
            if not is_done:
                self._futures.update(enumerate(futures[count:], position + count))
                return ReadResult(elements, None)
            try:
                elements.append(future.result())
            except Exception as error:
                count += 1
                self._futures.update(enumerate(futures[count:], position + count))
                return ReadResult(elements, error)
        return ReadResult(elements, None)

    def _look_ahead(self, position: int) -> None:
        """Submit the records from `position` on, as far ahead as the options allow."""
        ahead = self._ahead
        if self._probe.trial is not None:
            ahead = min(ahead, self._trial_ahead)
        first = max(position, self._ahead_end)
        end = min(position + ahead, self._length)
        if first < end:
            for number, key in enumerate(self._keys_of(first, end - first), first):
                self._futures[number] = self._submit(key)
            self._ahead_end = end

    def _submit(self, key: Any) -> Future[Any]:
        if self._pool is None:
            self._pool = Background(self._threads, "gristmill-read")
            if self._closed:
                self._pool.close()
        if self._probe.trial is not None:
            return self._pool.submit(self._probe.trial.read, self._source, key)
        return self._pool.submit(_read, self._source, key)


def _is_done_within(future: Future[Any], timeout_s: float) -> bool:
    """Wait for a read for at most `timeout_s`, and return whether it has ended."""
    with contextlib.suppress(Exception):  # The time is up, or the read was cancelled.
        future.exception(timeout_s)
    return future.done()


def _read(source: Any, key: Any) -> Any:
    return source[key]
