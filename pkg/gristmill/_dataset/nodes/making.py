"""Makes the iterators of many datasets, ahead of need where making them is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.options import DatasetOptions
from gristmill._dataset.nodes.thread_prefetch import ThreadPrefetchIterDataset
from gristmill.options import ReadOptions

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Make: TypeAlias = Callable[[int, DatasetOptions], DatasetIterator[Any] | None]

SLOW_MAKE_S = 1e-3


class Making:
    """Makes iterators of numbered datasets, in the order of their numbers.

    Args:
        make: Makes the iterator of a dataset, given options of the chain that it will
            be a part of; None where the dataset is absent.
        count: How many datasets there are.
        options: How many threads make iterators, and how many may wait; 0 of either
            makes them where they are needed.
    """

    def __init__(self, make: Make, count: int, options: ReadOptions) -> None:
        self._make = make
        self._count = count
        self._threads = options.num_threads
        self._ahead = options.prefetch_buffer_size if options.num_threads else 0
        self._slow = False
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[int, Future[DatasetIterator[Any] | None]] = {}

    def take(self, number: int, options: DatasetOptions) -> DatasetIterator[Any] | None:
        """The iterator of a dataset.

        Raises:
            Exception: It could not be made.
        """
        waiting = self._waiting.pop(number, None)
        if self._slow and self._ahead:
            self._look_ahead(number + 1, options)
        if waiting is not None:
            return waiting.result()
        began = time.perf_counter()
        try:
            return self._make(number, options)
        finally:
            self._slow = time.perf_counter() - began > SLOW_MAKE_S

    def forget(self) -> None:
        """Drop what was made ahead."""
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()

    def close(self) -> None:
        """Make no more."""
        self.forget()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _look_ahead(self, first: int, options: DatasetOptions) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # Slow to import.

            self._pool = ThreadPoolExecutor(self._threads, "gristmill-make-iterator")
        for number in range(first, min(first + self._ahead, self._count)):
            if number not in self._waiting:
                future = self._pool.submit(self._make, number, options)
                self._waiting[number] = future


def iterator_of(
    datasets: Any,
    buffer_size: int,
    number: int,
    options: DatasetOptions,
    start: bool = True,
) -> DatasetIterator[Any] | None:
    """Make the iterator of one of several datasets.

    Args:
        datasets: A sequence, or a `MapDataset`, whose elements are datasets.
        buffer_size: How many elements of an `IterDataset` a thread computes ahead.
        number: Which of them.
        options: Of the chain that it will be a part of.
        start: Whether the thread begins.

    Returns:
        The iterator; None where the dataset is absent.
    """
    dataset = datasets[number]
    if dataset is None:
        return None
    iterator: DatasetIterator[Any]
    if isinstance(dataset, MapDataset):
        # Has threads of its own, where they help.
        iterator = iter(dataset.to_iter_dataset())
        start = False
    else:
        ahead = ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=buffer_size)
        iterator = iter(ahead)
    context = iterator._ctx
    context.dataset_options = options.merge(context.dataset_options)
    if start:
        iterator.start_prefetch()
    return iterator
