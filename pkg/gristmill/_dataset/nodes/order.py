"""Datasets that have their parent's elements at other indices.

A run of them is one formula, a `_core.KeyPlan` over the nearest dataset above that is
none of them.
"""

from __future__ import annotations

import builtins
import functools
import sys
from typing import Any

import numpy as np

from gristmill import _core
from gristmill._base.checks import check_flag, check_integer
from gristmill._base.types import Int64Array, T
from gristmill._dataset.model.blocks import BlockMapDataset, block_of, is_built_in
from gristmill._dataset.model.failing import record_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import ParentSpec, builds, with_parents


class IndexMapDataset(ParentSpec, BlockMapDataset[T]):
    """A dataset that only says which of its parent's elements comes at an index."""

    _KIND = "order"
    _AS_THEY_ARE = True

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        """The plan of this dataset, given its parent's."""
        return plan

    def __len__(self) -> int:
        return len(self._parent)

    def _computing_with(self, threads: int) -> MapDataset[T]:
        parent = self._parent._computing_with(threads)
        unchanged = parent is self._parent
        return self if unchanged else with_parents(self, [parent])

    @functools.cached_property
    def _plan(self) -> tuple[_core.KeyPlan, MapDataset[Any]]:
        """Indices here to indices of a dataset above, and that dataset."""
        run: list[IndexMapDataset[Any]] = [self]
        base = self._parent
        while isinstance(base, IndexMapDataset) and is_built_in(type(base)):
            run.append(base)
            base = base._parent
        plan = _core.KeyPlan.positions(len(base))
        for node in reversed(run):
            plan = node._extend(plan)
        return plan, base

    def _record(self, index: int) -> int | None:
        plan, base = self._plan
        return record_of(base, int(plan.keys(np.array([index], np.int64))[0]))

    def _block(self, indices: Int64Array) -> list[Any]:
        plan, base = self._plan
        return block_of(base, plan.keys(indices))


@builds("MapDataset.shuffle")
class ShuffleMapDataset(IndexMapDataset[T]):
    """The parent's elements in a random order, another one in each epoch."""

    def __init__(self, parent: MapDataset[T], seed: int | None = None) -> None:
        super().__init__(parent)
        if seed is None:
            seed = self._default_seed
        if seed is None:
            raise ValueError(
                "`shuffle` requires a seed. Please provide it with `ds.seed(seed)`"
                " before this, or with `ds.shuffle(seed)`."
            )
        text = f"Seed must be an integer between 0 and 2**32-1 (got {seed=})."
        if not hasattr(seed, "__int__"):
            raise TypeError(text)
        if not 0 <= seed < 2**32:
            raise ValueError(text)
        self._seed = int(seed)

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        return plan.shuffle(self._seed)


@builds("MapDataset.slice")
class SliceMapDataset(IndexMapDataset[T]):
    """The elements at the indices of a slice, of each epoch."""

    _CUT_IN_PIECES = True

    def __init__(self, parent: MapDataset[T], sl: builtins.slice) -> None:
        super().__init__(parent)
        if not isinstance(sl, builtins.slice):
            raise ValueError(
                f"sl is not a slice: {type(sl)}. Pass slice(start, stop, step), or"
                " write ds[start:stop:step]."
            )
        self._slice = sl
        self._measure()

    def _measure(self) -> None:
        self._start, self._stop, self._step = self._slice.indices(len(self._parent))
        self._length = len(range(self._start, self._stop, self._step))

    def __len__(self) -> int:
        return self._length

    def _arguments_text(self) -> str:
        return f"[{self._start}:{self._stop}:{self._step}]"

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        return plan.take(self._start, self._step, self._length)


@builds("MapDataset.repeat")
class RepeatMapDataset(IndexMapDataset[T]):
    """Several epochs of the parent as one."""

    _SAID = ("num_epochs",)

    def __init__(
        self,
        parent: MapDataset[T],
        num_epochs: int | None = None,
        reseed_each_epoch: bool = True,
    ) -> None:
        super().__init__(parent)
        if num_epochs is not None:
            check_integer("num_epochs", num_epochs)
            if num_epochs <= 0:
                raise ValueError(f"num_epochs must be positive, but got {num_epochs}.")
        check_flag("reseed_each_epoch", reseed_each_epoch)
        if len(parent) >= sys.maxsize:
            raise ValueError(
                f"Repeating already infinite dataset {parent} does nothing."
            )
        self._num_epochs = num_epochs
        self._reseed_each_epoch = reseed_each_epoch
        self._measure()

    def _measure(self) -> None:
        epoch = len(self._parent)
        if self._num_epochs is None:
            self._length = sys.maxsize if epoch else 0
        else:
            self._length = self._num_epochs * epoch

    def __len__(self) -> int:
        return self._length

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        return plan.repeat(self._num_epochs, self._reseed_each_epoch)
