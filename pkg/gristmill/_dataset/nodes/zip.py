"""Datasets that combine the elements of several datasets in tuples."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from gristmill._base.argument_checks import check_flag
from gristmill._base.types import Indices, T
from gristmill._dataset.model import states
from gristmill._dataset.model.blocks import BlockMapDataset, block_of
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.known_length import count_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import Dataset, as_dataset_list, builds


class ZipBase(Dataset):
    """A zip dataset of either kind."""

    _KIND = "order"
    _REPR_ARGS: ClassVar[tuple[str, ...]] = ("parents",)

    def __init__(self, parents: Sequence[Any]) -> None:
        super().__init__(as_dataset_list(parents, "zip"))
        if not self._parents:
            raise ValueError("At least one parent must be provided.")

    @property
    def _element_spec(self) -> Any:
        return tuple(parent._element_spec for parent in self._parents)


@builds("MapDataset.zip")
class ZipMapDataset(ZipBase, BlockMapDataset[T]):
    """Tuples of the elements of datasets of the same length at an index.

    An element that is absent is None in its tuple.

    Args:
        parents: The datasets, at least 1.

    Raises:
        ValueError: `parents` is empty, or the datasets differ in length.

    Example:
        >>> MapDataset = gristmill.MapDataset
        >>> parts = [MapDataset.range(3), MapDataset.range(10, 13)]
        >>> list(gristmill.experimental.ZipMapDataset(parts))
        [(0, 10), (1, 11), (2, 12)]
    """

    def __init__(self, parents: Sequence[MapDataset[Any]]) -> None:
        super().__init__(parents)
        self._update_from_parents()

    def _update_from_parents(self) -> None:
        lengths = [len(parent) for parent in self._parents]
        if len(set(lengths)) != 1:
            raise ValueError(
                f"All parents must have the same length, got {lengths}. Slice or repeat"
                " them first."
            )
        self._length = lengths[0]

    def _block(self, indices: Indices) -> list[Any]:
        columns = [block_of(parent, indices) for parent in self._parents]
        return list(zip(*columns, strict=True))


@builds("IterDataset.zip")
class ZipIterDataset(ZipBase, IterDataset[T]):
    """Tuples of the next element of each dataset.

    Args:
        parents: The datasets, at least 1.
        strict: Whether to raise an error if the datasets differ in length.  Otherwise
            iteration ends with the shortest.

    Raises:
        ValueError: `parents` is empty. While iterating: a dataset ends before another.

    Example:
        >>> MapDataset = gristmill.MapDataset
        >>> parts = [MapDataset.range(n).to_iter_dataset() for n in (2, 3)]
        >>> list(gristmill.experimental.ZipIterDataset(parts, strict=False))
        [(0, 0), (1, 1)]
    """

    _REPR_ARGS = ("parents", "strict")

    def __init__(
        self, parents: Sequence[IterDataset[Any]], *, strict: bool = True
    ) -> None:
        super().__init__(parents)
        check_flag("strict", strict)
        self._strict = strict

    def __iter__(self) -> DatasetIterator[T]:
        return ZipDatasetIterator(self)

    def _count_elements(self) -> float:
        return min(map(count_of, self._parents))


class ZipDatasetIterator(NodeIterator[T]):
    """Iterates over several iterators in parallel."""

    _STATE = states.fields(parents=states.parents)

    def __next__(self) -> Any:
        items: list[Any] = []
        try:
            # `extend` stops at the first parent that has ended.
            items.extend(map(next, self._parents))
        except Exception:
            self._skip(len(items) + 1)
            raise
        if len(items) == len(self._parents):
            return tuple(items)
        self._raise_at_end(len(items))

    def get_state(self) -> Any:
        return {"parents": [parent.get_state() for parent in self._parents]}

    def _go_to(self, state: Any) -> None:
        for parent, position in zip(self._parents, state["parents"], strict=True):
            parent.set_state(position)

    def __str__(self) -> str:
        return f"ZipDatasetIterator([{len(self._parents)} parents])"

    def _skip(self, first: int) -> None:
        """Drop the next element of the parents from `first` on.

        The parent before them has failed, and its tuple is lost. This keeps the other
        parents in step.
        """
        for parent in self._parents[first:]:
            with contextlib.suppress(Exception):
                next(parent, None)

    def _raise_at_end(self, number: int) -> NoReturn:
        """Raise StopIteration, or ValueError if parent `number` ended too early."""
        if self._node._strict and number > 0:
            raise ValueError(_length_error(number, "shorter"))
        if self._node._strict:
            missing = object()
            for later, parent in enumerate(self._parents[1:], start=1):
                if next(parent, missing) is not missing:
                    raise ValueError(_length_error(later, "longer"))
        raise StopIteration


def _length_error(number: int, comparative: str) -> str:
    """Return the text of an error about parent `number`, "shorter" or "longer"."""
    others = "argument 1" if number == 1 else f"arguments 1-{number}"
    return f"ZipIterDataset argument {number + 1} is {comparative} than {others}"
