"""Datasets that make several elements of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill._base.checks import check_integer, kind
from gristmill._base.types import Int64Array, S, Splits, T
from gristmill._dataset.model import state_checks
from gristmill._dataset.model.blocks import BlockMapDataset, block_of
from gristmill._dataset.model.failing import note_element
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.names import transform_name


class FlatMapMapDataset(BlockMapDataset[T]):
    """``max_fan_out`` indices for each element; those it does not fill are None.

    Args:
        parent: Has the elements.
        transform: Makes a sequence of each.
    """

    _SPARSE = True

    def __init__(self, parent: MapDataset[S], transform: Splits[S, T]) -> None:
        super().__init__(parent)
        _check(transform)
        check_integer(
            f"max_fan_out of {kind(transform)}", getattr(transform, "max_fan_out", None)
        )
        if transform.max_fan_out < 1:
            raise ValueError(
                f"max_fan_out of {kind(transform)} must be at least 1, got"
                f" {transform.max_fan_out}."
            )
        self._transform = transform

    def __len__(self) -> int:
        fan_out = self._transform.max_fan_out
        if len(self._parent) >= sys.maxsize / fan_out:
            return sys.maxsize
        return fan_out * len(self._parent)

    def __str__(self) -> str:
        return f"FlatMapMapDataset(transform={transform_name(self._transform)})"

    def _block(self, indices: Int64Array) -> list[Any]:
        fan_out = self._transform.max_fan_out
        of, within = np.divmod(indices, fan_out)
        needed, which = np.unique(of, return_inverse=True)
        elements = block_of(self._parent, needed)
        splits = []
        for index, element in zip(needed.tolist(), elements, strict=True):
            try:
                splits.append(self._split(element))
            except Exception as error:
                note_element(error, self, self._parent, index)
                raise
        pairs = zip(which.tolist(), within.tolist(), strict=True)
        return [splits[w][k] if k < len(splits[w]) else None for w, k in pairs]

    def _split(self, element: Any) -> Sequence[Any]:
        if element is None:
            return ()
        splits: Any = self._transform.flat_map(element)
        if not isinstance(splits, Sequence):
            splits = list(splits)
        if len(splits) > self._transform.max_fan_out:
            raise ValueError(
                "The user-provided FlatMapTransform has a split that exceeds specified"
                f" max fan-out size: {transform_name(self._transform)} made"
                f" {len(splits)} elements of one, but max_fan_out is"
                f" {self._transform.max_fan_out}. Raise max_fan_out, or split less."
            )
        found: Sequence[Any] = splits
        return found


class FlatMapIterDataset(IterDataset[T]):
    """All elements that are made of each.

    Args:
        parent: Gives the elements.
        transform: Makes a sequence of each, of any length.
    """

    def __init__(self, parent: IterDataset[S], transform: Splits[S, T]) -> None:
        super().__init__(parent)
        _check(transform)
        self._transform = transform

    def __iter__(self) -> DatasetIterator[T]:
        return FlatMapDatasetIterator(iter(self._parent), self._transform)

    def __str__(self) -> str:
        return f"FlatMapIterDataset(transform={transform_name(self._transform)})"


class FlatMapDatasetIterator(DatasetIterator[T]):
    """Iterates over the elements made of each of the parent's.

    The state is the position before the element in hand, and how many of its were
    given out; restoring makes them again.
    """

    _TAKES_IN_STEP = True

    def __init__(self, parent: DatasetIterator[S], transform: Splits[S, T]) -> None:
        super().__init__(parent)
        _check(transform)
        self._transform = transform
        self._before = parent.get_state()
        self._splits: Sequence[Any] = ()
        self._given = 0

    def __next__(self) -> T:
        while self._given >= len(self._splits):
            self._before = self._parent.get_state()
            try:
                element = next(self._parent)
                self._splits, self._given = (), 0
                self._splits = self._split(element)
            except StopIteration:
                # The position at the end keeps the last count, as Grain's does.
                raise
            except Exception:
                self._before = self._parent.get_state()
                self._splits, self._given = (), 0
                raise
        split: T = self._splits[self._given]
        self._given += 1
        return split

    def get_state(self) -> Any:
        """The position before the element in hand, and its elements given out."""
        return {"parent": self._before, "next_index_in_buffer": self._given}

    @state_checks.checked(
        state_checks.fields(
            parent=state_checks.parent, next_index_in_buffer=state_checks.count
        )
    )
    def set_state(self, state: Any) -> None:
        """Continue at a position."""
        self._before = state["parent"]
        self._parent.set_state(self._before)
        self._splits, self._given = (), state["next_index_in_buffer"]
        if self._given:
            element = next(self._parent, None)
            self._splits = () if element is None else self._split(element)

    def __str__(self) -> str:
        return f"FlatMapDatasetIterator(transform={transform_name(self._transform)})"

    def _split(self, element: Any) -> Sequence[Any]:
        try:
            splits: Any = self._transform.flat_map(element)
            return splits if hasattr(splits, "__getitem__") else list(splits)
        except Exception as error:
            self._failed(error)
            raise


def _check(transform: Any) -> None:
    """Refuse what makes no elements of one."""
    if isinstance(transform, type) or not hasattr(transform, "flat_map"):
        raise TypeError(
            "The transform of a flat map must be an instance of transforms.FlatMap, got"
            f" {kind(transform)}. Give it max_fan_out and flat_map(element)."
        )
