"""Datasets that split each element into several."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill._base.argument_checks import check_integer, kind
from gristmill._base.types import Indices, S, Splits, T
from gristmill._dataset.model.blocks import (
    BlockMapDataset,
    block_of,
    epochs_and_offsets,
)
from gristmill._dataset.model.error_notes import note_element
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    CountingIterator,
    DatasetIterator,
)
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.names import transform_name
from gristmill._dataset.model.node import Dataset
from gristmill._hot import cancellation


class FlatMapBase(Dataset):
    """A flat-map dataset of either kind."""

    def __init__(self, parent: Any, transform: Splits[Any, Any]) -> None:
        super().__init__(parent)
        if isinstance(transform, type) or not hasattr(transform, "flat_map"):
            raise TypeError(
                "The transform of a flat map must be an instance of transforms.FlatMap,"
                f" got {kind(transform)}. Give it max_fan_out and flat_map(element)."
            )
        self._transform = transform

    def _arguments_text(self) -> str:
        return f"(transform={transform_name(self._transform)})"


class FlatMapMapDataset(FlatMapBase, BlockMapDataset[T]):
    """``max_fan_out`` indices for each element; unused ones are None.

    Args:
        parent: The dataset.
        transform: Splits an element into a sequence.

    Raises:
        TypeError: `max_fan_out` of the transform is not an int.
        ValueError: `max_fan_out` of the transform is less than 1.

    Example:
        >>> class Letters(gristmill.transforms.FlatMap):
        ...     max_fan_out = 2
        ...     def flat_map(self, element):
        ...         return list(element)
        >>> words = gristmill.MapDataset.source(["ab", "c"])
        >>> ds = FlatMapMapDataset(words, Letters())
        >>> [ds[i] for i in range(len(ds))]
        ['a', 'b', 'c', None]
    """

    _SPARSE = "FlatMapMapDataset"

    def __init__(self, parent: MapDataset[S], transform: Splits[S, T]) -> None:
        super().__init__(parent, transform)
        check_integer(
            f"max_fan_out of {kind(transform)}", getattr(transform, "max_fan_out", None)
        )
        if transform.max_fan_out < 1:
            raise ValueError(
                f"max_fan_out of {kind(transform)} must be at least 1, got"
                f" {transform.max_fan_out}."
            )

    def __len__(self) -> int:
        return min(self._transform.max_fan_out * len(self._parent), sys.maxsize)

    def _block(self, indices: Indices) -> list[Any]:
        fan_out = self._transform.max_fan_out
        parent_indices, offsets = epochs_and_offsets(indices, fan_out)
        needed, inverse = np.unique(parent_indices, return_inverse=True)
        elements = block_of(self._parent, needed)
        splits = []
        for index, element in zip(needed.tolist(), elements, strict=True):
            try:
                splits.append(self._split(element))
            except Exception as error:
                note_element(error, self, self._parent, index)
                raise
        pairs = zip(inverse.tolist(), offsets.tolist(), strict=True)
        return [splits[n][k] if k < len(splits[n]) else None for n, k in pairs]

    def _split(self, element: Any) -> Sequence[Any]:
        """Return the elements that an element is split into; none if it is absent.

        Raises:
            ValueError: There are more than `max_fan_out`.
        """
        if element is None:
            return ()
        splits = list(self._transform.flat_map(element))
        if len(splits) > self._transform.max_fan_out:
            raise ValueError(
                "The user-provided FlatMapTransform has a split that exceeds specified"
                f" max fan-out size: {transform_name(self._transform)} made"
                f" {len(splits)} elements of one, but max_fan_out is"
                f" {self._transform.max_fan_out}. Increase max_fan_out, or split less."
            )
        return splits


class FlatMapIterDataset(FlatMapBase, IterDataset[T]):
    """All elements that each element is split into.

    Args:
        parent: The dataset.
        transform: Splits an element into a sequence of any length.

    Example:
        >>> class Letters(gristmill.transforms.FlatMap):
        ...     max_fan_out = 2
        ...     def flat_map(self, element):
        ...         return list(element)
        >>> words = gristmill.MapDataset.source(["abc", "d"]).to_iter_dataset()
        >>> list(FlatMapIterDataset(words, Letters()))
        ['a', 'b', 'c', 'd']
    """

    def __init__(self, parent: IterDataset[S], transform: Splits[S, T]) -> None:
        super().__init__(parent, transform)

    def __iter__(self) -> DatasetIterator[T]:
        return FlatMapDatasetIterator(self)


class FlatMapDatasetIterator(CountingIterator[T]):
    """Iterates over the elements that each element of the parent is split into.

    The state is the position before the parent's current element, and the number of
    its splits that were returned.  Restoring splits it again.
    """

    _FOLLOWS_PARENT = True
    _COUNTER_NAME = "next_index_in_buffer"

    def __init__(self, node: FlatMapBase) -> None:
        super().__init__(node)
        # The parent's state before its current element, and that element's splits.
        self._state_before_element = self._parent.get_state()
        self._splits: Sequence[Any] = ()

    def __next__(self) -> T:
        while self.counter >= len(self._splits):
            cancellation.check()
            self._state_before_element = self._parent.get_state()
            try:
                element = next(self._parent)
                self._splits, self.counter = (), 0
                self._splits = self._split(element)
            except StopIteration:
                # Like in Grain, the position at the end keeps the last count.
                raise
            except Exception:
                self._state_before_element = self._parent.get_state()
                self._splits, self.counter = (), 0
                raise
        self.counter += 1
        try:
            split: T = self._splits[self.counter - 1]
        except Exception as error:
            self._note_failure(error)
            raise
        return split

    def _go_to(self, state: Any) -> None:
        super()._go_to(state)
        self._state_before_element, self._splits = state["parent"], ()
        if self.counter:
            # At the end, the last count is kept but the parent has no element.
            element = next(self._parent, None)
            self._splits = () if element is None else self._split(element)

    def _parent_state(self) -> Any:
        return self._state_before_element

    def _split(self, element: Any) -> Sequence[Any]:
        """Return the elements that an element is split into, as a sequence."""
        try:
            splits: Any = self._node._transform.flat_map(element)
            # A sequence may compute its items when `next` reads them.
            return splits if hasattr(splits, "__getitem__") else list(splits)
        except Exception as error:
            self._note_failure(error)
            raise
