"""What makes datasets of something that is none, or of several: their metaclasses."""

# mypy: disable-error-code="no-any-return"
# `build` gives what is registered, of any class.

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from gristmill import transforms
from gristmill._base.types import S
from gristmill._dataset.model.node import build
from gristmill.sources import Columns, RandomAccessDataSource

if TYPE_CHECKING:
    from gristmill._dataset.model.iter_dataset import IterDataset
    from gristmill._dataset.model.map_dataset import MapDataset


class MapDatasetMeta(abc.ABCMeta):
    """Holds what makes a `MapDataset` of something that is none."""

    @overload
    def source(
        cls, source: Sequence[S] | RandomAccessDataSource[S]
    ) -> MapDataset[S]: ...

    @overload
    def source(cls, source: Columns) -> MapDataset[dict[str, Any]]: ...

    def source(cls, source: Any) -> MapDataset[Any]:
        """A dataset of what a source has.

        Args:
            source: Anything with ``__len__`` and ``__getitem__(int)``: a list, an
                array, an `ArrayRecordDataSource`...

        Example:
            >>> list(gristmill.MapDataset.source("abc"))
            ['a', 'b', 'c']
        """
        return build("MapDataset.source", source)

    def range(
        cls, start: int, stop: int | None = None, step: int = 1
    ) -> MapDataset[int]:
        """A dataset of integers, with the arguments of `range`."""
        return build("MapDataset.range", start, stop, step)

    def mix(
        cls,
        datasets: Sequence[MapDataset[S]],
        weights: Sequence[float] | None = None,
    ) -> MapDataset[S]:
        """A dataset that takes from several in turn, in proportion to weights.

        It ends with the first part that would run out.  Shuffle and repeat the parts.

        Args:
            datasets: The parts, at least 1.
            weights: One positive number for each; None for equal ones.

        Example:
            >>> MapDataset = gristmill.MapDataset
            >>> parts = [MapDataset.range(5), MapDataset.range(10, 15)]
            >>> list(MapDataset.mix(parts, [2, 1]))
            [0, 1, 10, 2, 3, 11, 4]
        """
        return build("MapDataset.mix", datasets, weights)

    def select_from_datasets(
        cls,
        datasets: Sequence[MapDataset[S]],
        selection_map: transforms.DatasetSelectionMap,
    ) -> MapDataset[S]:
        """A dataset that takes from several by a map of your own.

        Args:
            datasets: The parts.
            selection_map: Gives (dataset, index in it) for each index.
        """
        return build("MapDataset.select_from_datasets", datasets, selection_map)

    def zip(cls, datasets: Sequence[MapDataset[Any]]) -> MapDataset[tuple[Any, ...]]:
        """A dataset of tuples, of one element of each part; equal lengths."""
        return build("MapDataset.zip", datasets)

    def concatenate(cls, datasets: Sequence[MapDataset[S]]) -> MapDataset[S]:
        """A dataset of all parts, one after another; epoch e has epoch e of each."""
        return build("MapDataset.concatenate", datasets)


class IterDatasetMeta(abc.ABCMeta):
    """Holds what makes an `IterDataset` of several."""

    def mix(
        cls,
        datasets: Sequence[IterDataset[S]] | Mapping[str, IterDataset[S]],
        weights: Sequence[float] | Mapping[str, float] | None = None,
    ) -> IterDataset[S]:
        """A dataset that takes from several in turn, in proportion to weights.

        It ends when the one whose turn it is has ended.

        Args:
            datasets: The parts, or a mapping of names to them: a state by name can be
                restored after parts or weights have changed.
            weights: As many positive numbers, with the same names; None for equal ones.
        """
        return build("IterDataset.mix", datasets, weights)

    def zip(
        cls, datasets: Sequence[IterDataset[Any]], *, strict: bool = True
    ) -> IterDataset[tuple[Any, ...]]:
        """A dataset of tuples, of one element of each part.

        Args:
            datasets: The parts, at least 1.
            strict: Whether parts that do not end together are a ValueError; else it
                ends with the shortest.
        """
        return build("IterDataset.zip", datasets, strict=strict)
