"""A chain in one epoch. Each epoch has its own order and random draws."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Self

from gristmill._base.epoch_context import check_epoch, use_epoch
from gristmill._base.types import T
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    ForwardingIterator,
)
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import ParentSpec, builds
from gristmill._dataset.model.observer import suppress_observation

# The key of the epoch in states.  States of epoch 0 are the parent's states, without
# it.
_EPOCH = "at_epoch"


@builds("MapDataset._in_epoch")
def map_dataset_in_epoch(dataset: MapDataset[T], epoch: int) -> MapDataset[T]:
    """Return the dataset of one epoch's elements."""
    length = len(dataset)
    first = epoch * length
    if first > sys.maxsize - length:
        raise ValueError(
            f"epoch {epoch} is too large for {dataset} with {length} elements. If the"
            " dataset is infinite, remove repeat(), or iterate over it only once."
        )
    return dataset.repeat().slice(slice(first, first + length))


@builds("IterDataset.at_epoch")
class EpochIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements in one epoch; see `IterDataset.at_epoch`."""

    _KEEPS_LENGTH = True
    _KIND = "order"
    _IS_SELECTION = True
    _REPR_ARGS = ("epoch",)

    def __init__(self, parent: IterDataset[T], epoch: int) -> None:
        super().__init__(parent)
        self._epoch = check_epoch(epoch)

    def __iter__(self) -> DatasetIterator[T]:
        return EpochDatasetIterator(self)

    def _in_epoch(self, epoch: int) -> Self:
        return self  # This dataset already has an epoch.

    def open_epoch(self, epoch: int) -> DatasetIterator[T]:
        """Return an iterator over the parent in any epoch."""
        chain = self._parent._in_epoch(epoch) if epoch else self._parent
        # The chain has the epoch, so ignore that of this thread.
        with suppress_observation(), use_epoch(0):
            iterator: DatasetIterator[T] = iter(chain)
        return iterator


class EpochDatasetIterator(ForwardingIterator[T]):
    """Iterates over the parent in one epoch; a state moves it to another."""

    def __init__(self, node: EpochIterDataset[T]) -> None:
        super().__init__([node.open_epoch(node._epoch)])
        self._node = node
        self._epoch = node._epoch

    def __next__(self) -> T:
        element: T = next(self._parents[0])
        return element

    def get_state(self) -> Any:
        """Return the epoch and the parent's position, or only that in epoch 0."""
        state = super().get_state()
        return {_EPOCH: self._epoch, "parent": state} if self._epoch else state

    def _check_state(self, state: Any) -> None:
        epoch, position = split_state(state)
        states.count(self, epoch, _EPOCH)
        states.check_state(self._parent, position)

    def _go_to(self, state: Any) -> None:
        epoch, position = split_state(state)
        if epoch != self._epoch:
            self._move_to_epoch(epoch)
        self._parent.set_state(position)

    def __str__(self) -> str:
        return f"{type(self).__name__}(epoch={self._epoch})"

    def _move_to_epoch(self, epoch: int) -> None:
        """Replace the parent with the beginning of another epoch."""
        parent = self._node.open_epoch(epoch)
        # Nodes after this one may have changed the context of the old parent.
        parent._ctx.dataset_options = self._ctx.dataset_options
        parent._ctx.mp_context = self._ctx.mp_context
        self._parent.close()
        self._parents, self._ctx = (parent,), parent._ctx
        self._epoch = epoch


def split_state(state: Any) -> tuple[Any, Any]:
    """Return the epoch, and the position in it."""
    if isinstance(state, Mapping) and state.keys() == {_EPOCH, "parent"}:
        return state[_EPOCH], state["parent"]
    return 0, state
