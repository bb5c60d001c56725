"""Computes parts of a dataset in threads, and joins their elements."""

from __future__ import annotations

import copy

from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._base.types import T
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import ParentSpec
from gristmill._dataset.model.options import MultiprocessingContext
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.slicing import slice_chain
from gristmill._dataset.nodes.with_options import WithOptionsIterDataset, options_of


def multithread_prefetch(
    ds: IterDataset[T],
    num_threads: int,
    buffer_size: int,
    sequential_slice: bool = False,
) -> IterDataset[T]:
    """Compute a dataset in several threads, for Python without a GIL.

    Thread t computes elements t, t + `num_threads`, ... of each `MapDataset` that the
    chain starts with, with its own copy of all transforms.

    Args:
        ds: The dataset.
        num_threads: The number of threads; 0 returns the dataset itself.
        buffer_size: The most elements of each thread that may wait.
        sequential_slice: Whether each thread gets a contiguous piece of each source.

    Returns:
        The dataset, computed by the threads; `ds` itself for 0 threads.

    Raises:
        ValueError: A source of the chain cannot be split.

    Example:
        >>> ds = gristmill.MapDataset.range(6).to_iter_dataset()
        >>> ds = gristmill.experimental.multithread_prefetch(ds, 2, buffer_size=1)
        >>> list(ds.map(lambda x: x * 10))
        [0, 10, 20, 30, 40, 50]
    """
    for name, value in (("num_threads", num_threads), ("buffer_size", buffer_size)):
        check_integer(name, value)
        if value < 0:
            raise ValueError(f"{name} must be at least 0, got {value}.")
    check_flag("sequential_slice", sequential_slice)
    if num_threads == 0:
        return ds
    parts = []
    for thread in range(num_threads):
        part = slice_chain(ds, thread, num_threads, sequential_slice)
        if num_threads > 1:
            part = copy.deepcopy(part)
        place = MultiprocessingContext(process_index=thread, process_count=num_threads)
        parts.append(PlacedIterDataset(part, place))
    joined = InterleaveIterDataset[T](
        parts, cycle_length=num_threads, iter_buffer_size=buffer_size
    )
    # The parts are not parents, so their options would be lost.
    return WithOptionsIterDataset(joined, options_of(ds))


class PlacedIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements, computed as if in one of several processes."""

    _KEEPS_LENGTH = True

    def __init__(self, parent: IterDataset[T], place: MultiprocessingContext) -> None:
        super().__init__(parent)
        self._place = place

    def __iter__(self) -> DatasetIterator[T]:
        iterator: DatasetIterator[T] = iter(self._parent)
        iterator._ctx.mp_context = self._place
        return iterator
