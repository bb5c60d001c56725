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
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator, index_iterators_of
from gristmill._observe.measured_copy import copy_measured
from gristmill._observe.meter import Measurement

# Measuring a block takes up to 0.2 ms, so a shorter run has none.
FIRST_SAMPLE_NS = 10_000_000
SAMPLE_INTERVAL_NS = 250_000_000


class Sampling:
    """Reads some blocks of a dataset, and measures them.

    Threads may read at the same time.  `_lock` guards changes of `_copy`,
    `measurement`, `measured_elements` and `measured_ns`.  The threads that read set
    `due_ns` without it.  `Watch` calls `begin`, `count` and `sample_ready`, which
    change the other numbers without it; see `Watch` for the threads.

    Args:
        dataset: The dataset.
        wake: Called by the thread that reads: with False before it measures a block,
            and with True if an element fails.  `next` raises that error later, after
            the elements before it.

    Attributes:
        due_ns: The time from which `read` should read a block, by
            `time.perf_counter_ns`.
        measurement: The measurement of the blocks, or None before the first one.
        measured_elements: The number of elements in these blocks.
        measured_ns: The time for these blocks, with that of other programs.
        index_count: The number of elements that `next` passed while calls were timed.
        ready_elements: The sum of the numbers of ready elements in all samples.
        ready_samples: The number of these samples.
    """

    def __init__(self, dataset: MapDataset[Any], wake: Callable[[bool], None]) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._copy: Any = None
        self.measurement: Measurement | None = None
        self._wake = wake
        self.measured_elements = self.measured_ns = 0
        self.index_count = self.ready_elements = self.ready_samples = 0
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
            self.measured_elements += len(indices)
            self.measured_ns += duration_ns
        return elements

    def note_failure(self) -> None:
        """Record that an element failed."""
        self._wake(True)

    def begin(self, feed: PrefetchDatasetIterator[Any]) -> None:
        """Begin to count the elements that `next` passes."""
        self._last_index = feed.position

    def count(self, feed: PrefetchDatasetIterator[Any]) -> None:
        """Count the elements that `next` passed since the last call."""
        self.index_count += max(feed.position - self._last_index, 0)
        self._last_index = feed.position

    def sample_ready(self, feed: PrefetchDatasetIterator[Any]) -> None:
        """Add the number of elements that are ready now."""
        ready = feed.count_ready()
        self.ready_elements += ready
        self.ready_samples += 1
        if monitoring.is_on():
            monitoring.record_ready(ready)


def samplings_of(
    iterator: Any,
) -> Iterator[tuple[Sampling, PrefetchDatasetIterator[Any]]]:
    """Yield each `Sampling` of a chain, and the iterator that reads its blocks."""
    for feed in index_iterators_of(iterator):
        if isinstance(feed.meter, Sampling):
            yield feed.meter, feed
