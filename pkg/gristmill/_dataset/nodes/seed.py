"""Nodes that hold a seed for the random steps behind them."""

from __future__ import annotations

from typing import TypeVar

from gristmill import _core
from gristmill._base.checks import check_seed_of_draws
from gristmill._base.describing import call_text
from gristmill._dataset.model.building import builds
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.spec import ParentSpec
from gristmill._dataset.nodes.order import IndexMapDataset

T = TypeVar("T")


@builds("MapDataset.seed")
class WithSeedMapDataset(IndexMapDataset[T]):
    """The parent's elements, and a seed."""

    def __init__(self, parent: MapDataset[T], *, seed: int) -> None:
        super().__init__(parent)
        check_seed_of_draws("seed", seed, mixed=[0])
        self._seed_rng_seed = seed

    def __len__(self) -> int:
        return len(self._parent)

    def __str__(self) -> str:
        return "WithOptionsMapDataset"

    def __repr__(self) -> str:
        return call_text(self, seed=self._seed_rng_seed)

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        return plan


@builds("IterDataset.seed")
class WithSeedIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements, and a seed."""

    def __init__(self, parent: IterDataset[T], *, seed: int) -> None:
        super().__init__(parent)
        check_seed_of_draws("seed", seed, mixed=[0])
        self._seed_rng_seed = seed

    def __iter__(self) -> DatasetIterator[T]:
        iterator: DatasetIterator[T] = iter(self._parent)
        return iterator

    def __str__(self) -> str:
        return "WithOptionsIterDataset"

    def __repr__(self) -> str:
        return call_text(self, seed=self._seed_rng_seed)
