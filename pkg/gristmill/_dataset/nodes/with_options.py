"""Nodes that set options for the whole chain."""

from __future__ import annotations

from typing import Any

from gristmill import _core
from gristmill._base.checks import check_options
from gristmill._base.types import T
from gristmill._dataset.model.building import builds
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import chain_of
from gristmill._dataset.model.options import DatasetOptions
from gristmill._dataset.model.spec import ParentSpec
from gristmill._dataset.nodes.order import IndexMapDataset

EXAMPLE = "DatasetOptions(filter_raise_threshold_ratio=0.99)"


@builds("MapDataset.set_options")
class WithOptionsMapDataset(IndexMapDataset[T]):
    """The parent's elements; options hold for all iterators that are made of it.

    Args:
        parent: The dataset.
        options: What to set.
    """

    def __init__(self, parent: MapDataset[T], options: DatasetOptions) -> None:
        super().__init__(parent)
        check_options("options", options, DatasetOptions, EXAMPLE)
        self.options = options

    def __len__(self) -> int:
        return len(self._parent)

    def __str__(self) -> str:
        return f"WithOptionsMapDataset(options={self.options})"

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        return plan


@builds("IterDataset.set_options")
class WithOptionsIterDataset(ParentSpec, IterDataset[T]):
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
        check_options("options", options, DatasetOptions, EXAMPLE)
        self.options = options

    def __iter__(self) -> DatasetIterator[T]:
        iterator: DatasetIterator[T] = iter(self._parent)
        iterator._ctx.dataset_options = self.options.merge(
            iterator._ctx.dataset_options
        )
        return iterator

    def __str__(self) -> str:
        return f"WithOptionsIterDataset(options={self.options})"


def options_of(dataset: Any) -> DatasetOptions:
    """The options that a dataset and its ancestors set, the last one of each."""
    found = DatasetOptions()
    for node in chain_of(dataset):
        if isinstance(node, (WithOptionsMapDataset, WithOptionsIterDataset)):
            found = found.merge(node.options)
    return found
