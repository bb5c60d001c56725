"""Nodes that hold a seed for the random steps behind them."""

from __future__ import annotations

from typing import TypeVar

from gristmill import _core
from gristmill._checks import check_seed_of_draws
from gristmill._dataset.base import IterDataset, MapDataset
from gristmill._dataset.iterator import DatasetIterator
from gristmill._dataset.order import IndexMapDataset
from gristmill._dataset.spec import ParentSpec
from gristmill._describing import call_text

T = TypeVar("T")


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
