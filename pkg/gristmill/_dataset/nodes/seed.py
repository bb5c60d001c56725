"""Nodes that hold a seed for the random steps behind them."""

from __future__ import annotations

from typing import Any

from gristmill._base.checks import check_seed_of_draws
from gristmill._base.describing import call_text
from gristmill._base.types import T
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import ParentSpec, builds
from gristmill._dataset.nodes.order import IndexMapDataset


class Seeding(ParentSpec):
    """A node of either kind that holds a seed."""

    def __init__(self, parent: Any, *, seed: int) -> None:
        super().__init__(parent)
        check_seed_of_draws("seed", seed, mixed=[0])
        self._seed_rng_seed = seed

    def __str__(self) -> str:
        # Grain's names.
        return type(self).__name__.replace("Seed", "Options")

    def __repr__(self) -> str:
        return call_text(self, seed=self._seed_rng_seed)


@builds("MapDataset.seed")
class WithSeedMapDataset(Seeding, IndexMapDataset[T]):
    """The parent's elements, and a seed."""


@builds("IterDataset.seed")
class WithSeedIterDataset(Seeding, IterDataset[T]):
    """The parent's elements, and a seed."""

    _stride = 1

    def __iter__(self) -> DatasetIterator[T]:
        iterator: DatasetIterator[T] = iter(self._parent)
        return iterator
