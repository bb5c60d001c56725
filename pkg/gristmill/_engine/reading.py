"""Reads records by threads if reading waits.

A source that answers at once, or that computes, is read in the caller's own loop:
threads would only share its processor.  A source that waits (network, disk) is read by
`ReadOptions.num_threads` threads, up to `ReadOptions.prefetch_buffer_size` records
ahead of need.

The caller's own reads show, now and again, which of the two it is: reads of single
records, or of blocks if the source has ``__getitems__``.  As soon as one of them
waits, even before it has returned, threads read on: on trial, see `read_trial`.

A source whose attribute `by_threads` is False is always read by the caller.  The order
of records never depends on it.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gristmill import _core
from gristmill._base import threads, waiting
from gristmill._base.types import Int64Array
from gristmill._engine.background import Background
from gristmill._engine.read_trial import ReadTrial
from gristmill._hot import cancellation
from gristmill._hot import run as hot_run
from gristmill._hot.block_call import WrongNumber
from gristmill.options import ReadOptions

if TYPE_CHECKING:
    from concurrent.futures import Future

# What waits for longer is read by threads.
SLOW_READ_S = 100e-6
# A read that has waited for so long without returning has proved to wait.
LONG_READ_S = 1e-3
# Records, or blocks of them.
PROBED_READS = 5
BLOCKS_BETWEEN_PROBES = 256
# Time that records wait for the next ones of their block, after they were read.
PATIENCE_S = 5e-3

Keys = Int64Array | list[Any]
KeysOf = Callable[[int, int], Iterable[Any]]
# The elements up to a failed read, and its exception.
Read = tuple[list[Any], Exception | None]
# The position of some records, and their keys.
_Records: TypeAlias = tuple[int, list[Any]]


def read_each(source: Any, keys: Iterable[Any]) -> tuple[list[Any], Exception | None]:
    """The elements up to the first failed read, and its exception."""
    elements: list[Any] = []
    try:
        for key in keys:
            cancellation.check()
            elements.append(source[key])
    except Exception as error:
        return elements, error
    return elements, None


def read_together(
    source: Any, keys: list[Any]
) -> tuple[list[Any], Exception | None] | None:
    """As `read_each`, at once where that works; None where the number is wrong."""
    try:
        elements: list[Any] | None = list(source.__getitems__(keys))
    except WrongNumber as error:
        return [], error  # None of them alone is bad.
    except Exception:
        elements = None
    if elements is None:
        # Not above, where the exception would be the context of the one raised here.
        return read_each(source, keys)  # It shows which is bad.
    return (elements, None) if len(elements) == len(keys) else None


class Reading:
    """Reads blocks of one stream's records.

    `keys_of` is called with (position, count) and returns the source's keys there;
    nothing past `length` is read.  0 threads or look-ahead of `options` never use
    threads.  The caller reads at least `least` records at once, if there are as many.
    One thread calls, though `source` is read from many.
    """

    def __init__(
        self,
        source: Any,
        options: ReadOptions,
        keys_of: KeysOf,
        length: int,
        look_ahead: bool,
        least: int = 1,
    ) -> None:
        self._source = source
        self._keys_of = keys_of
        self._length = length
        self._least = least
        self._threads = int(options.num_threads)
        self._looks_ahead = look_ahead
        self._ahead = int(options.prefetch_buffer_size) if look_ahead else 0
        wanted = options.num_threads > 0 and options.prefetch_buffer_size > 0
        self._allowed = wanted and getattr(source, "by_threads", True)
        # Blocks that are still read by threads, or by the caller without a look.
        named = threads.reads_thread_name(source) or getattr(
            source, "reads_thread_name", False
        )
        self._by_threads = sys.maxsize if named else 0
        self._by_caller = 0
        self._in_blocks = hot_run.reads_together(type(source))
        # Time that the last of the caller's reads took for each record, in s.
        self._record_s = math.inf
        # Whether that was so long that it may have waited.
        self._took_long = True
        # Reads of the caller in a row that did not wait.
        self._fast_reads = 0
        self._trial: ReadTrial | None = None
        # Times that reads of the caller waited while threads were idle, in s; after a
        # trial without a result.
        self._waited_s: list[float] | None = None
        # Records after those of the current read, while that is watched.
        self._following: _Records | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._pool: Background | None = None
        self._waiting: dict[int, Future[Any]] = {}
        self._reached = 0

    def read(
        self, position: int, keys: Keys
    ) -> tuple[list[Any], Exception | None] | None:
        """Read the records at `position`, position + 1, ... or decline.

        Returns None if the caller should read for itself: the source does not wait.
        Otherwise the elements up to the first failed read, and its exception; or those
        that were read first, at least one, if the others are slow.
        """
        if not self._allowed:
            return None
        if self._by_caller and not (self._by_threads or self._waiting):
            self._by_caller -= 1
            return None
        listed = keys.tolist() if isinstance(keys, np.ndarray) else keys
        if self._trial is not None and self._trial.is_over:
            self._judge(self._trial)
        if self._by_threads or self._waiting or self._trial is not None:
            return self._read_by_threads(position, listed, [])
        return self._look(position, listed)

    @property
    def capacity(self) -> int:
        """How many records may be read ahead; 0 while the caller reads for itself."""
        by_threads = self._by_threads or self._waiting or self._trial is not None
        return self._ahead if by_threads else 0

    def ready(self, position: int) -> int:
        """How many records were read ahead, from `position` on without a gap."""
        count = 0
        while True:
            future = self._waiting.get(position + count)
            if future is None or not future.done():
                return count
            count += 1

    def start(self, position: int) -> None:
        """Begin to read ahead from `position`, whatever the source is."""
        if self._allowed and self._ahead:
            self._look_ahead(position)

    def probe_soon(self) -> None:
        """Look again at the next read whether it waits: something has changed."""
        self._by_caller = 0

    def forget(self) -> None:
        """Drop what was read ahead: the stream goes on from somewhere else."""
        # Copied: `close` may be called while another thread reads.
        for future in [*self._waiting.values()]:
            future.cancel()
        self._waiting.clear()
        self._reached = 0

    def close(self) -> None:
        """Read no more.  Any thread may call this; it does not wait for a read."""
        self._closed = True
        self.forget()
        if self._pool is not None:
            self._pool.close()

    def _look(
        self, position: int, keys: list[Any]
    ) -> tuple[list[Any], Exception | None] | None:
        """Read in the caller; once a read has waited, let threads read the rest."""
        elements: list[Any] = []
        # Records of a unit that others share should not wait for each other.
        together = self._in_blocks and self._looks_ahead
        most = len(keys) if together else self._least
        decided = False
        while len(elements) < len(keys) and not decided:
            left = keys[len(elements) :]
            count = min(len(left), most)
            found = self._watched_read(position + len(elements), left, count)
            if found is None:
                return None
            (some, failure), waited_s = found
            elements += some
            if failure is not None:
                return elements, failure
            decided = self._has_decided(None if waited_s is None else waited_s / count)
            if self._record_s > PATIENCE_S or not self._looks_ahead:
                break
        left = keys[len(elements) :]
        if self._trial is not None or self._by_threads:
            return self._read_by_threads(position + len(elements), left, elements)
        rest: Read | None
        if self._record_s * len(left) > PATIENCE_S or not self._looks_ahead:
            rest = [], None
        elif self._in_blocks and left:
            rest = read_together(self._source, left)
        else:
            rest = read_each(self._source, left)
        return None if rest is None else (elements + rest[0], rest[1])

    def _watched_read(
        self, position: int, keys: list[Any], count: int
    ) -> tuple[Read, float | None] | None:
        """Read the first `count` records, and find out how long that waited, in s.

        The time is None if it is unknown: after a quick read, only the duration of the
        next one is measured.
        """
        following: _Records | None = None
        if self._waited_s is None:
            following = position + count, keys[count:]
        go_on = functools.partial(self._go_on, following)
        watch = _core.Watch(go_on, waiting=True)
        self._following = following
        clocks = waiting.clocks() if self._took_long else None
        began_s = time.perf_counter()
        watch.begin(LONG_READ_S)
        try:
            read: Read | None
            if self._in_blocks and count > 1:
                read = read_together(self._source, keys[:count])
            else:
                read = read_each(self._source, keys[:count])
        finally:
            watch.end()
            with self._lock:
                self._following = None
        if read is None:
            return None
        took_s, waited_s = time.perf_counter() - began_s, None
        if clocks is not None:
            ended = waiting.clocks()
            took_s = ended.wall_s - clocks.wall_s
            waited_s = waiting.waited_s(clocks, ended)
        self._record_s = took_s / count
        self._took_long = self._record_s > SLOW_READ_S
        return read, waited_s if self._took_long else 0.0

    def _go_on(self, following: _Records | None, _: float) -> None:
        """Have threads read on while the caller waits; called by another thread."""
        with self._lock:
            if following is None or following is not self._following:
                return  # The read has returned.
            position, keys = following
            self._trial = ReadTrial(self._threads)
            for number, key in enumerate(keys, position):
                self._waiting[number] = self._submit(key)
            self._look_ahead(position + len(keys))

    def _has_decided(self, waited_s: float | None) -> bool:
        """Take a read of the caller into account; returns whether that settles it."""
        if self._trial is not None:
            return True
        if waited_s is None:
            self._fast_reads = 0  # The next read is measured.
            return False
        if self._waited_s is not None:
            self._waited_s.append(waited_s)
            if len(self._waited_s) < PROBED_READS:
                return False
            # The middle one: one may wait its turn, another open a file.
            self._decide(sorted(self._waited_s)[PROBED_READS // 2] > SLOW_READ_S)
            return True
        if waited_s > SLOW_READ_S:
            self._trial = ReadTrial(self._threads)
            return True
        self._fast_reads += 1
        if self._fast_reads < PROBED_READS:
            return False
        self._decide(False)
        return True

    def _judge(self, trial: ReadTrial) -> None:
        waits = trial.waits(SLOW_READ_S)
        if waits is None:
            self._trial, self._waited_s = None, []
        else:
            self._decide(waits)

    def _decide(self, waits: bool) -> None:
        """Choose who reads the next blocks."""
        self._trial = self._waited_s = None
        self._fast_reads = 0
        self._by_threads = BLOCKS_BETWEEN_PROBES if waits else 0
        self._by_caller = 0 if waits else BLOCKS_BETWEEN_PROBES

    def _read_by_threads(
        self, position: int, keys: list[Any], elements: list[Any]
    ) -> tuple[list[Any], Exception | None]:
        """Add the records at `position`, ... to those that were read before them."""
        if self._pool is not None and self._pool.lost:
            # A fork has the futures of its parent's threads, which it has not.
            self._waiting.clear()
            self._pool = None
        futures = []
        for number, key in enumerate(keys, position):
            begun = self._waiting.pop(number, None)
            futures.append(self._submit(key) if begun is None else begun)
        if self._by_threads:
            self._by_threads -= 1
            if not self._by_threads:
                self._trial = ReadTrial(self._ahead)
        if self._by_threads or self._trial is not None:
            self._look_ahead(position + len(futures))
        for given, future in enumerate(futures):
            try:
                elements.append(future.result(PATIENCE_S if elements else None))
            except Exception as error:
                given += future.done()
                self._waiting.update(enumerate(futures[given:], position + given))
                return elements, error if future.done() else None
        return elements, None

    def _look_ahead(self, position: int) -> None:
        ahead = self._ahead
        if self._trial is not None:
            ahead = min(ahead, self._trial.ahead)
        first = max(position, self._reached)
        last = min(position + ahead, self._length)
        if first < last:
            for number, key in enumerate(self._keys_of(first, last - first), first):
                self._waiting[number] = self._submit(key)
            self._reached = last

    def _submit(self, key: Any) -> Future[Any]:
        if self._pool is None:
            self._pool = Background(self._threads, "gristmill-read")
            if self._closed:
                self._pool.close()
        if self._trial is not None:
            return self._pool.submit(self._trial.read, self._source, key)
        return self._pool.submit(_read, self._source, key)


def _read(source: Any, key: Any) -> Any:
    return source[key]
