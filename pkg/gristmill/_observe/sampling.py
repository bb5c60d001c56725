"""Measures some blocks of a dataset that is read by index, at very low cost.

From time to time, a measured copy of the chain computes a block, with the same
elements.  A user's own node is not copied, so its time includes that of its parents.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from gristmill import monitoring
from gristmill._base.types import Int64Array
from gristmill._dataset.model.blocks import block_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator, feeds_of
from gristmill._observe.measured_copy import copy_measured
from gristmill._observe.meter import Measurement

# Measuring a block takes up to 0.2 ms, so a shorter run has none.
FIRST_SAMPLE_NS = 10_000_000
SAMPLE_INTERVAL_NS = 250_000_000


class Sampling:
    """Reads some blocks of a dataset, and measures them.

    Threads may read at the same time.

    Args:
        dataset: The dataset.
        wake: Called with False before a block is measured, and with True if an element
            fails, which `next` raises after the elements before it.

    Attributes:
        due_ns: The time from which `read` should read a block, by
            `time.perf_counter_ns`.
        measurement: The measurement of the blocks, or None before the first one.
        measured: The number of elements in these blocks.
        took_ns: The time for these blocks, with that of other programs.
        indices: The number of indices that were given out while calls were timed.
        ready: The number of elements that were ready, summed over all looks.
        looks: The number of looks.
    """

    def __init__(self, dataset: MapDataset[Any], wake: Callable[[bool], None]) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._copy: Any = None
        self.measurement: Measurement | None = None
        self._wake = wake
        self.measured = self.took_ns = 0
        self.indices = self.ready = self.looks = 0
        self._last_index = 0
        self.due_ns = time.perf_counter_ns() + FIRST_SAMPLE_NS

    def read(self, indices: Int64Array) -> list[Any]:
        """Return the elements at `indices`, of shape (n,), and measure them."""
        with self._lock:
            if self._copy is None:
                self._copy, self.measurement = copy_measured(
                    self._dataset, copies_user_nodes=False
                )
        self._wake(False)
        start_ns = time.perf_counter_ns()
        self.due_ns = start_ns + SAMPLE_INTERVAL_NS
        elements = block_of(self._copy, indices)
        duration_ns = time.perf_counter_ns() - start_ns
        with self._lock:
            self.measured += len(indices)
            self.took_ns += duration_ns
        return elements

    def note_failure(self) -> None:
        """Record that an element failed."""
        self._wake(True)

    def begin(self, feed: PrefetchDatasetIterator[Any]) -> None:
        """Begin to count indices that are given out."""
        self._last_index = feed.position

    def count(self, feed: PrefetchDatasetIterator[Any]) -> None:
        """Count the indices that were given out since the last time."""
        self.indices += max(feed.position - self._last_index, 0)
        self._last_index = feed.position

    def look(self, feed: PrefetchDatasetIterator[Any]) -> None:
        """Count the elements that are ready."""
        ready = feed.count_ready()
        self.ready += ready
        self.looks += 1
        if monitoring.is_on():
            monitoring.record_ready(ready)


def samplings_of(
    iterator: Any,
) -> Iterator[tuple[Sampling, PrefetchDatasetIterator[Any]]]:
    """Yield each `Sampling` of a chain, and the iterator that reads its blocks."""
    for feed in feeds_of(iterator):
        if isinstance(feed.sampling, Sampling):
            yield feed.sampling, feed
