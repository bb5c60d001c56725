"""A node that sets options for the whole chain."""

from __future__ import annotations

from typing import Any, TypeVar

from gristmill._dataset.base import IterDataset
from gristmill._dataset.iterator import DatasetIterator
from gristmill._dataset.options import DatasetOptions
from gristmill._dataset.spec import get_element_spec

T = TypeVar("T")


class WithOptionsIterDataset(IterDataset[T]):
    """The parent's elements; options hold for what is before and behind this node.

    Where several nodes of a chain set one option, the last one wins.

    Args:
        parent: The dataset.
        options: What to set.

    Example:
        >>> options = gristmill.experimental.DatasetOptions(
        ...     filter_raise_threshold_ratio=0.99
        ... )
        >>> ds = gristmill.MapDataset.range(9).to_iter_dataset()
        >>> ds = ds.pipe(gristmill.experimental.WithOptionsIterDataset, options)
        >>> len(list(ds))
        9
    """

    def __init__(self, parent: IterDataset[T], options: DatasetOptions) -> None:
        super().__init__(parent)
        self.options = options

    def __iter__(self) -> DatasetIterator[T]:
        iterator: DatasetIterator[T] = iter(self._parent)
        iterator._ctx.dataset_options = self.options.merge(
            iterator._ctx.dataset_options
        )
        return iterator

    def __str__(self) -> str:
        return f"WithOptionsIterDataset(options={self.options})"

    @property
    def _element_spec(self) -> Any:
        return get_element_spec(self._parent)
