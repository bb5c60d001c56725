"""Nodes that set options for a whole chain, or a seed for the nodes after them."""

from __future__ import annotations

from typing import Any

from gristmill._base.argument_checks import check_options, check_seed_of_draws
from gristmill._base.object_repr import call_text
from gristmill._base.types import T
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import ParentSpec, builds, chain_of
from gristmill._dataset.model.options import DatasetOptions
from gristmill._dataset.nodes.order import IndexMapDataset

EXAMPLE = "DatasetOptions(filter_raise_threshold_ratio=0.99)"


class WithOptionsBase(ParentSpec):
    """A node of either kind that sets options."""

    _IS_SELECTION = True

    def __init__(self, parent: Any, options: DatasetOptions) -> None:
        super().__init__(parent)
        check_options("options", options, DatasetOptions, EXAMPLE)
        self.options = options

    def _arguments_text(self) -> str:
        return f"(options={self.options})"


@builds("MapDataset.set_options")
class WithOptionsMapDataset(WithOptionsBase, IndexMapDataset[T]):
    """The parent's elements. The options apply to all iterators over this dataset."""


@builds("IterDataset.set_options")
class WithOptionsIterDataset(WithOptionsBase, IterDataset[T]):
    """The parent's elements. The options apply to all nodes of the chain.

    If several nodes of a chain set the same option, the last one wins.

    Args:
        parent: The dataset.
        options: The options to set.

    Example:
        >>> options = gristmill.experimental.DatasetOptions(
        ...     filter_raise_threshold_ratio=0.99
        ... )
        >>> ds = gristmill.MapDataset.range(9).to_iter_dataset()
        >>> ds = ds.pipe(gristmill.experimental.WithOptionsIterDataset, options)
        >>> len(list(ds))
        9
    """

    _KEEPS_LENGTH = True
    _elements_per_output = 1

    def __iter__(self) -> DatasetIterator[T]:
        # This node has no iterator of its own.
        iterator: DatasetIterator[T] = iter(self._parent)
        iterator._ctx.dataset_options = self.options.merge(
            iterator._ctx.dataset_options
        )
        return iterator


def options_of(dataset: Any) -> DatasetOptions:
    """Return the options set by a dataset and its ancestors. The last node wins."""
    merged = DatasetOptions()
    for node in chain_of(dataset):
        if isinstance(node, WithOptionsBase):
            merged = merged.merge(node.options)
    return merged


class WithSeedBase(ParentSpec):
    """A node of either kind that holds a seed."""

    _IS_SELECTION = True

    def __init__(self, parent: Any, *, seed: int) -> None:
        super().__init__(parent)
        check_seed_of_draws("seed", seed, mixed=[0])
        self._seed_rng_seed = seed

    def _node_line(self) -> str:
        # Grain's names.
        return type(self).__name__.replace("Seed", "Options")

    def __repr__(self) -> str:
        return call_text(self, seed=self._seed_rng_seed)


@builds("MapDataset.seed")
class WithSeedMapDataset(WithSeedBase, IndexMapDataset[T]):
    """The parent's elements, and a seed."""


@builds("IterDataset.seed")
class WithSeedIterDataset(WithSeedBase, IterDataset[T]):
    """The parent's elements, and a seed."""

    _KEEPS_LENGTH = True
    _elements_per_output = 1

    def __iter__(self) -> DatasetIterator[T]:
        # No iterator is needed: random steps find the seed by `_default_seed`.
        iterator: DatasetIterator[T] = iter(self._parent)
        return iterator
