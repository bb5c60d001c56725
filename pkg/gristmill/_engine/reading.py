"""Reads records by threads where reading waits.

A source that answers at once, or that computes, is read in the caller's own loop:
threads would only share its processor.  A source that waits (network, disk) is read by
`ReadOptions.num_threads` threads, up to `ReadOptions.prefetch_buffer_size` records
ahead of need.  A few reads of the caller tell which of the two it is, now and again:
reads of single records, or of blocks where the source has ``__getitems__``.  A source
whose attribute `by_threads` is False is always read by the caller.  The order of
records never depends on it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gristmill._base import threads, waiting
from gristmill._base.types import Int64Array
from gristmill._hot import run as hot_run
from gristmill._hot.block_call import WrongNumber
from gristmill.options import ReadOptions

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# What waits for longer is read by threads.
SLOW_READ_S = 100e-6
# Records, or blocks of them.
PROBED_READS = 5
BLOCKS_BETWEEN_PROBES = 256

Keys = Int64Array | list[Any]
KeysOf = Callable[[int, int], Iterable[Any]]
# The elements up to a failed read, and its exception.
Read = tuple[list[Any], Exception | None]


def read_each(source: Any, keys: Iterable[Any]) -> tuple[list[Any], Exception | None]:
    """The elements up to the first failed read, and its exception."""
    elements: list[Any] = []
    try:
        for key in keys:
            elements.append(source[key])
    except Exception as error:
        return elements, error
    return elements, None


def read_together(
    source: Any, keys: list[Any]
) -> tuple[list[Any], Exception | None] | None:
    """As `read_each`, at once where that works; None where the number is wrong."""
    try:
        elements = list(source.__getitems__(keys))
    except WrongNumber as error:
        return [], error  # None of them alone is bad.
    except Exception:
        return read_each(source, keys)  # It shows which is bad.
    return (elements, None) if len(elements) == len(keys) else None


class Reading:
    """Reads blocks of one stream's records.

    `keys_of` is called with (position, count) and returns the source's keys there;
    nothing past `length` is read.  0 threads or look-ahead of `options` never use
    threads.  One thread calls, though `source` is read from many.
    """

    def __init__(
        self,
        source: Any,
        options: ReadOptions,
        keys_of: KeysOf,
        length: int,
        look_ahead: bool,
    ) -> None:
        self._source = source
        self._keys_of = keys_of
        self._length = length
        self._threads = int(options.num_threads)
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
        self._waited_s: list[float] = []
        self._pool: ThreadPoolExecutor | None = None
        self._pool_owner = 0
        self._waiting: dict[int, Future[Any]] = {}
        self._reached = 0

    def read(
        self, position: int, keys: Keys
    ) -> tuple[list[Any], Exception | None] | None:
        """Read the records at `position`, position + 1, ... or decline.

        Returns None where the caller should read for itself: the source does not wait.
        Otherwise the elements up to the first failed read, and its exception.
        """
        if not self._allowed:
            return None
        if self._by_caller and not (self._by_threads or self._waiting):
            self._by_caller -= 1
            return None
        listed = keys.tolist() if isinstance(keys, np.ndarray) else keys
        if self._by_threads or self._waiting:
            return self._read_by_threads(position, listed)
        if self._in_blocks and len(listed) > 1:
            return self._probe_block(listed)
        return self._probe(position, listed)

    @property
    def capacity(self) -> int:
        """How many records may be read ahead; 0 while the caller reads for itself."""
        return self._ahead if self._by_threads or self._waiting else 0

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
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()
        self._reached = 0

    def close(self) -> None:
        """Cancel reads that have not begun.  Does not wait for the others."""
        self.forget()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _probe(
        self, position: int, keys: list[Any]
    ) -> tuple[list[Any], Exception | None]:
        """Read a few records, find out whether that waits, and read the rest so."""
        elements: list[Any] = []
        while len(elements) < len(keys) and len(self._waited_s) < PROBED_READS:
            began = waiting.clocks()
            try:
                elements.append(self._source[keys[len(elements)]])
            except Exception as error:
                return elements, error
            self._waited_s.append(waiting.waited_s(began, waiting.clocks()))
        if len(self._waited_s) < PROBED_READS:
            return elements, None
        done = len(elements)
        self._decide()
        if self._by_threads:
            rest, failure = self._read_by_threads(position + done, keys[done:])
        else:
            rest, failure = read_each(self._source, keys[done:])
        return elements + rest, failure

    def _probe_block(
        self, keys: list[Any]
    ) -> tuple[list[Any], Exception | None] | None:
        """Read a block, and find out whether that waits."""
        began = waiting.clocks()
        read = read_together(self._source, keys)
        if read is not None and read[1] is None:
            waited = waiting.waited_s(began, waiting.clocks())
            self._waited_s.append(waited / len(keys))
            if len(self._waited_s) == PROBED_READS:
                self._decide()
        return read

    def _decide(self) -> None:
        """Choose who reads the next blocks."""
        # The middle one: a first read may open a file, another wait its turn.
        slow = sorted(self._waited_s)[PROBED_READS // 2] > SLOW_READ_S
        self._waited_s.clear()
        self._by_threads = BLOCKS_BETWEEN_PROBES if slow else 0
        self._by_caller = 0 if slow else BLOCKS_BETWEEN_PROBES

    def _read_by_threads(
        self, position: int, keys: list[Any]
    ) -> tuple[list[Any], Exception | None]:
        if self._pool_owner != os.getpid():
            # A fork has the futures of its parent's threads, which it has not.
            self._waiting.clear()
            self._pool = None
        futures = []
        for number, key in enumerate(keys, position):
            waiting = self._waiting.pop(number, None)
            futures.append(self._submit(key) if waiting is None else waiting)
        if self._by_threads:
            self._by_threads -= 1
            self._look_ahead(position + len(futures))
        elements: list[Any] = []
        try:
            for future in futures:
                elements.append(future.result())
        except Exception as error:
            behind = len(elements) + 1
            self._waiting.update(enumerate(futures[behind:], position + behind))
            return elements, error
        return elements, None

    def _look_ahead(self, position: int) -> None:
        first = max(position, self._reached)
        last = min(position + self._ahead, self._length)
        if first < last:
            for number, key in enumerate(self._keys_of(first, last - first), first):
                self._waiting[number] = self._submit(key)
            self._reached = last

    def _submit(self, key: Any) -> Future[Any]:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # Slow to import.

            self._pool = ThreadPoolExecutor(self._threads, "gristmill-read")
            self._pool_owner = os.getpid()
        return self._pool.submit(_read_if_wanted, self._source, key)


def _read_if_wanted(source: Any, key: Any) -> Any:
    """Read in a thread; not at exit, which waits for all that threads were given."""
    from concurrent.futures import thread

    if getattr(thread, "_shutdown", False):
        raise RuntimeError("The interpreter is exiting.")
    return source[key]
