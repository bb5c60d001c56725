"""A dataset that ends early."""

from __future__ import annotations

from gristmill._base.checks import whole_number
from gristmill._base.types import T
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, ElementCountingIterator
from gristmill._dataset.model.node import ParentSpec


class LimitIterDataset(ParentSpec, IterDataset[T]):
    """The first elements of a dataset.

    Args:
        parent: The dataset.
        count: How many elements, at least 1; all where the parent has fewer.

    Raises:
        ValueError: The count is not positive.

    Example:
        >>> ds = gristmill.MapDataset.range(5).to_iter_dataset()
        >>> list(gristmill.experimental.LimitIterDataset(ds, count=2))
        [0, 1]
    """

    _KIND = "order"
    _SAID = ("count",)

    def __init__(self, parent: IterDataset[T], count: int) -> None:
        count = whole_number("count", count)
        if count <= 0:
            raise ValueError(f"Count must be a positive integer. Got {count}.")
        super().__init__(parent)
        self._count = count

    def __iter__(self) -> DatasetIterator[T]:
        return LimitDatasetIterator(self)


class LimitDatasetIterator(ElementCountingIterator[T]):
    """Iterates over the first elements."""

    _COUNTER_NAME = "count_elements_read"

    def __next__(self) -> T:
        if self.counter >= self._node._count:
            raise StopIteration
        element: T = next(self._parents[0])
        self.counter += 1
        return element
