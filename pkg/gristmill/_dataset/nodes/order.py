"""Datasets that reorder their parent's elements.

Consecutive nodes whose order is a formula are combined in one `_core.KeyPlan`, which
maps indices to those of the nearest ancestor that is not such a node.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill import _core
from gristmill._base.argument_checks import check_flag, check_integer, kind
from gristmill._base.types import IndexList, Indices, T
from gristmill._dataset.model.blocks import (
    BlockMapDataset,
    as_indices,
    block_of,
    checked_index,
    epochs_and_offsets,
    is_built_in,
    is_indices,
)
from gristmill._dataset.model.error_notes import record_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import ParentSpec, builds, with_parents

# The most indices in the text of a `ReindexMapDataset`. Otherwise it shows both ends.
MAX_SHOWN_INDICES = 5


class OrderMapDataset(ParentSpec, BlockMapDataset[T]):
    """A dataset that only maps indices to indices of its parent."""

    _KIND = "order"
    _IS_SELECTION = True
    _APPENDS_TO_OUT = True

    @property
    def _ancestor(self) -> MapDataset[Any]:
        parent: MapDataset[Any] = self._parent
        return parent

    def _record(self, index: int) -> int | None:
        (found,) = self._to_ancestor_indices(as_indices([index])).tolist()
        return record_of(self._ancestor, found)

    def _block(self, indices: Indices, out: list[Any] | None = None) -> list[Any]:
        return block_of(self._ancestor, self._to_ancestor_indices(indices), out)

    def _with_threads(self, threads: int) -> MapDataset[T]:
        parent = self._parent._with_threads(threads)
        unchanged = parent is self._parent
        return self if unchanged else with_parents(self, [parent])


class IndexMapDataset(OrderMapDataset[T]):
    """A dataset whose order is computed by a formula."""

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        """Return the plan of this dataset, given its parent's."""
        return plan

    def _to_parent_indices(self, indices: Indices) -> Indices:
        """Convert indices to indices of the parent; both are Python's integers."""
        return indices

    def __len__(self) -> int:
        return len(self._parent)

    @functools.cached_property
    def _plan(self) -> tuple[_core.KeyPlan, MapDataset[Any]]:
        """The plan from indices to indices of `_ancestor`, and `_ancestor`."""
        run: list[IndexMapDataset[Any]] = [self]
        base = self._parent
        while isinstance(base, IndexMapDataset) and is_built_in(type(base)):
            run.append(base)
            base = base._parent
        plan = _core.KeyPlan.positions(len(base))
        for node in reversed(run):
            plan = node._extend(plan)
        return plan, base

    @property
    def _ancestor(self) -> MapDataset[Any]:
        """The nearest ancestor that is not an `IndexMapDataset`."""
        return self._plan[1]

    def _to_ancestor_indices(self, indices: Indices) -> Indices:
        plan, base = self._plan
        try:
            return plan.keys(indices)
        except (OverflowError, TypeError):
            # Some index, or epoch of a slice of an endless dataset, exceeds 64 bits.
            indices = indices.astype(np.object_)
        node: Any = self
        while node is not base:
            indices = node._to_parent_indices(indices)
            node = node._parent
        return as_indices(indices.tolist())


@builds("MapDataset.shuffle")
class ShuffleMapDataset(IndexMapDataset[T]):
    """The parent's elements in a random order that changes each epoch."""

    _random = "order"

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

    def _to_parent_indices(self, indices: Indices) -> Indices:
        length = len(self._parent)
        epochs, offsets = epochs_and_offsets(indices, length)
        plan = _core.KeyPlan.range(length)
        shuffled = [
            plan.shuffle((self._seed + epoch) % 2**32).key(offset)
            for epoch, offset in zip(epochs.tolist(), offsets.tolist(), strict=True)
        ]
        return epochs * length + np.array(shuffled, np.object_)


class SliceMapDataset(IndexMapDataset[T]):
    """The elements at the indices of a slice, of each epoch."""

    _SLICEABLE = True

    def __init__(self, parent: MapDataset[T], sl: builtins.slice) -> None:
        super().__init__(parent)
        if not isinstance(sl, builtins.slice):
            raise ValueError(
                f"sl is not a slice: {type(sl)}. Pass slice(start, stop, step), or"
                " write ds[start:stop:step]."
            )
        self._slice = sl
        self._update_from_parents()

    def _update_from_parents(self) -> None:
        self._start, self._stop, self._step = self._slice.indices(len(self._parent))
        self._length = len(range(self._start, self._stop, self._step))

    def __len__(self) -> int:
        return self._length

    def _arguments_text(self) -> str:
        return f"[{self._start}:{self._stop}:{self._step}]"

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        return plan.take(self._start, self._step, self._length)

    def _to_parent_indices(self, indices: Indices) -> Indices:
        epochs, offsets = epochs_and_offsets(indices, self._length)
        parent_indices: Indices = (
            epochs * len(self._parent) + offsets * self._step + self._start
        )
        return parent_indices


class ReindexMapDataset(OrderMapDataset[T]):
    """The elements at listed indices, of each epoch of the parent.

    Args:
        parent: The dataset.
        indices: Ints, or a dataset of ints, which is read on demand.

    Raises:
        TypeError: The indices are not ints.

    Example:
        >>> list(gristmill.MapDataset.range(10).slice([3, 1, 3]))
        [3, 1, 3]
    """

    _SLICEABLE = True

    def __init__(
        self,
        parent: MapDataset[T],
        indices: Sequence[int] | IndexList | MapDataset[int],
    ) -> None:
        super().__init__(parent)
        # Other sequences may be long, and may compute their ints.
        in_memory = isinstance(indices, (list, tuple, np.ndarray))
        self._indices = _check_indices(indices) if in_memory else indices

    def __len__(self) -> int:
        return len(self._indices)

    def _arguments_text(self) -> str:
        indices, length = self._indices, len(self)
        if not isinstance(indices, np.ndarray):
            text = str(indices)
        elif length <= MAX_SHOWN_INDICES:
            text = str(indices.tolist())
        else:
            text = "[{}, {}, ..., {}, {}]".format(*indices[[0, 1, -2, -1]])
        return f"(indices={text}, len={length})"

    def _to_ancestor_indices(self, indices: Indices) -> Indices:
        epochs, offsets = epochs_and_offsets(indices, len(self))
        listed = self._indices
        if isinstance(listed, np.ndarray):
            positions = listed[offsets.astype(np.int64, copy=False)]
        elif isinstance(listed, MapDataset):
            positions = _check_indices(block_of(listed, offsets))
        else:
            positions = _check_indices([listed[each] for each in offsets.tolist()])
        if not epochs.any():
            return positions
        # Use Python's integers: the sum may not fit into 64 bits.
        parent_indices = positions + epochs.astype(np.object_) * len(self._parent)
        return as_indices(parent_indices.tolist())


@builds("MapDataset.slice")
def make_slice(
    parent: MapDataset[T], sl: Any
) -> SliceMapDataset[T] | ReindexMapDataset[T]:
    """See `MapDataset.slice`."""
    return (ReindexMapDataset if is_indices(sl) else SliceMapDataset)(parent, sl)


def _check_indices(indices: Any) -> Indices:
    """Return indices as an array of shape (n,)."""
    array = np.asarray(indices)
    if array.ndim == 1 and array.dtype.kind == "i":
        return array.astype(np.int64)
    if array.ndim == 1 and array.dtype.kind in "ufO":
        # NumPy returns floats if no integer dtype can hold all of the ints.
        return as_indices([checked_index(each) for each in indices])
    raise TypeError(
        "Indices of a MapDataset must be a sequence of ints, got"
        f" {kind(indices)} of dtype {array.dtype} and shape {array.shape}. For a mask,"
        " pass np.flatnonzero(mask)."
    )


@builds("MapDataset.repeat")
class RepeatMapDataset(IndexMapDataset[T]):
    """Several epochs of the parent, combined into one."""

    _REPR_ARGS = ("num_epochs",)

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
        self._update_from_parents()

    def _update_from_parents(self) -> None:
        epoch_length = len(self._parent)
        if self._num_epochs is None:
            self._length = sys.maxsize if epoch_length else 0
        else:
            self._length = self._num_epochs * epoch_length

    def __len__(self) -> int:
        return self._length

    def _extend(self, plan: _core.KeyPlan) -> _core.KeyPlan:
        return plan.repeat(self._num_epochs, self._reseed_each_epoch)

    def _to_parent_indices(self, indices: Indices) -> Indices:
        # The parent's later epochs, or its first epoch again.
        if self._reseed_each_epoch:
            return indices
        _, offsets = epochs_and_offsets(indices, len(self._parent))
        return offsets
