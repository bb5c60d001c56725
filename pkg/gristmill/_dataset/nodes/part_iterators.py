"""Creates the iterators of interleaved datasets."""

from __future__ import annotations

from typing import Any

from gristmill._base.epoch_context import epoch_context, use_epoch
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.observer import treat_as_part
from gristmill._dataset.model.options import IteratorContext
from gristmill._dataset.nodes.on_error import check_part
from gristmill._dataset.nodes.thread_prefetch import (
    ThreadPrefetchDatasetIterator,
    ThreadPrefetchIterDataset,
)
from gristmill._hot import cancellation
from gristmill._hot.error_location import as_failure


class PartIterators:
    """Creates iterators of several datasets, by number.

    It is also a source of iterators for `gristmill._engine.reading.Reading`, whose
    threads call `make_and_start` through `[]`.

    Args:
        datasets: The datasets, by number.
        buffer_size: The number of elements of an `IterDataset` that a thread
            prefetches.

    Attributes:
        chain_context: The context of the chain that contains these datasets.  The
            consumer's thread sets it before it opens a dataset.
    """

    def __init__(self, datasets: Any, buffer_size: int) -> None:
        self.chain_context = IteratorContext()
        self._datasets = datasets
        self._buffer_size = buffer_size
        self._epoch = epoch_context.epoch

    def __getitem__(self, number: int) -> DatasetIterator[Any] | None:
        return self.make_and_start(number)

    def make_and_start(self, number: int) -> DatasetIterator[Any] | None:
        """Create an iterator like `make`, and start its prefetching."""
        iterator = self.make(number)
        cancellation.check()
        if isinstance(iterator, ThreadPrefetchDatasetIterator):
            iterator.start_prefetch()
        return iterator

    def make(self, number: int) -> DatasetIterator[Any] | None:
        """Create the iterator of a dataset; return None if the dataset is absent.

        Raises:
            StopIteration: There are no more datasets.
        """
        dataset = self._datasets[number]
        if dataset is None:
            return None
        check_part(dataset, self.chain_context.leaves_out_errors)
        if isinstance(dataset, MapDataset):
            # Uses its own threads if they help.
            dataset = dataset.to_iter_dataset()
        else:
            size = self._buffer_size
            dataset = ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=size)
        try:
            with treat_as_part(), use_epoch(self._epoch):
                iterator: DatasetIterator[Any] = iter(dataset)
        except StopIteration as error:
            raise as_failure(error, f"iter() of dataset {number}") from error
        context = iterator._ctx
        context.dataset_options = self.chain_context.dataset_options.merge(
            context.dataset_options
        )
        return iterator
