"""MapDataset: a dataset whose elements have indices."""

# mypy: disable-error-code="no-any-return"
# `build` returns Any: nodes are registered by name.

from __future__ import annotations

import abc
import builtins
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, Never, Unpack, overload

import numpy.typing as npt

from gristmill._base import types
from gristmill._base.types import Array, D, IndexList, K, S, Scalar, T
from gristmill._dataset.model.batch_arguments import Bucketing, Padding, Stacking
from gristmill._dataset.model.iter_dataset import IterDataset

# Old pickles of users' classes look for it here.
from gristmill._dataset.model.iter_dataset import IterDatasetMeta as IterDatasetMeta
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.mixing_methods import MixesMapDatasets
from gristmill._dataset.model.node import build
from gristmill._dataset.model.packable import Packable
from gristmill.options import ReadOptions
from gristmill.sharding import AnyRemainder, Remainder, ShardOptions
from gristmill.sources import Columns, RandomAccessDataSource
from gristmill.transforms import AnyTransform, DatasetSelectionMap


class MapDatasetMeta(MixesMapDatasets):
    """Defines the class methods that create a `MapDataset`."""

    @overload
    def source(
        cls, source: Sequence[S] | RandomAccessDataSource[S]
    ) -> MapDataset[S]: ...
    @overload
    def source(cls, source: Columns) -> MapDataset[dict[str, Any]]: ...
    def source(cls, source: Any) -> MapDataset[Any]:
        """Make a dataset of the records of a source.

        Args:
            source: Has ``__len__`` and ``__getitem__(int)``, such as a list or array.

        Example:
            >>> list(gristmill.MapDataset.source("abc"))
            ['a', 'b', 'c']
        """
        return build("MapDataset.source", source)

    def range(
        cls, start: int, stop: int | None = None, step: int = 1
    ) -> MapDataset[int]:
        """Make a dataset of integers, with the arguments of `range`."""
        return build("MapDataset.range", start, stop, step)

    def select_from_datasets(
        cls, datasets: Sequence[MapDataset[S]], selection_map: DatasetSelectionMap
    ) -> MapDataset[S]:
        """Select elements from several datasets by a user-defined map.

        Args:
            datasets: The parts.
            selection_map: Maps each index to (dataset, index in it).
        """
        return build("MapDataset.select_from_datasets", datasets, selection_map)

    def zip(cls, datasets: Sequence[MapDataset[Any]]) -> MapDataset[tuple[Any, ...]]:
        """Make a dataset of tuples of one element of each part.

        Args:
            datasets: The parts, at least 1, all of the same length.

        Raises:
            ValueError: `datasets` is empty, or their lengths differ.
        """
        return build("MapDataset.zip", datasets)

    def concatenate(cls, datasets: Sequence[MapDataset[S]]) -> MapDataset[S]:
        """Make a dataset of all parts in order; epoch e has epoch e of each.

        Args:
            datasets: The parts.

        Raises:
            ValueError: A part has no end.
        """
        return build("MapDataset.concatenate", datasets)


class MapDataset(
    Packable["MapDataset[T]", "MapDataset[Any]"], Generic[T], metaclass=MapDatasetMeta
):
    """A dataset whose elements have indices.

    ``len(ds)`` is one epoch; ``ds[i]`` works for every integer, and epoch ``i //
    len(ds)`` has its own shuffles and random draws.  An element is None if a filter
    dropped it.  Datasets are immutable: a method returns a new one.

    A subclass calls ``super().__init__(parents)`` and implements ``__len__`` and
    ``__getitem__``, which also takes slices (``return self.slice(index)``).

    Args:
        parents: The datasets that this one is made of.

    Example:
        >>> ds = gristmill.MapDataset.range(10).shuffle(seed=1).map(lambda x: x * 10)
        >>> ds[0], len(ds[::3])
        (50, 4)
    """

    _FACE = "MapDataset"

    def __init__(
        self, parents: MapDataset[Any] | Sequence[MapDataset[Any]] = ()
    ) -> None:
        super().__init__(parents)

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of indices of one epoch."""

    @overload
    def __getitem__(
        self, index: builtins.slice | IndexList | MapDataset[int]
    ) -> MapDataset[T]: ...
    @overload
    def __getitem__(self, index: int) -> T | None: ...
    @abc.abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """Return an element, None if it is absent; or a dataset, see `slice`."""

    def _with_threads(self, threads: int) -> MapDataset[T]:
        """Return this dataset with no more than `threads` threads for its steps."""
        return self

    def _getitems(self, indices: Sequence[int]) -> Sequence[T | None]:
        """Return the elements at some indices; a subclass may read them together."""
        return [self[int(index)] for index in indices]

    def __iter__(self) -> DatasetIterator[T]:
        return iter(self.to_iter_dataset())

    def apply(
        self, transformations: AnyTransform | Sequence[AnyTransform]
    ) -> MapDataset[Any]:
        """Apply transforms, in this order.

        Args:
            transformations: One or several transforms.
        """
        return build("MapDataset.apply", self, transformations)

    def at_epoch(self, epoch: int) -> IterDataset[T]:
        """Call `IterDataset.at_epoch` of `to_iter_dataset()`."""
        return self.to_iter_dataset().at_epoch(epoch)

    def _in_epoch(self, epoch: int) -> Any:
        return build("MapDataset._in_epoch", self, epoch)

    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[list[T]], S],
    ) -> MapDataset[S]: ...
    # Any also matches Never: elements of unknown type come here.
    @overload
    def batch(
        self: MapDataset[Never], batch_size: int, **how: Unpack[Stacking]
    ) -> MapDataset[Any]: ...
    @overload
    def batch(
        self: MapDataset[Array[D]], batch_size: int, **how: Unpack[Stacking]
    ) -> MapDataset[npt.NDArray[D]]: ...
    @overload
    def batch(
        self: MapDataset[Scalar], batch_size: int, **how: Unpack[Stacking]
    ) -> MapDataset[npt.NDArray[Any]]: ...
    @overload
    def batch(
        self: MapDataset[dict[K, Never]], batch_size: int, **how: Unpack[Stacking]
    ) -> MapDataset[dict[K, Any]]: ...
    @overload
    def batch(
        self: MapDataset[dict[K, Array[D]]], batch_size: int, **how: Unpack[Stacking]
    ) -> MapDataset[dict[K, npt.NDArray[D]]]: ...
    @overload
    def batch(self, batch_size: int, **how: Unpack[Stacking]) -> MapDataset[Any]: ...
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[list[Any]], Any] | None = None,
    ) -> MapDataset[Any]:
        """Group consecutive elements; a batch never crosses an epoch.

        Args:
            batch_size: Elements per batch, ``B``, at least 1.
            drop_remainder: Whether to drop a last, shorter batch.
            batch_fn: Makes a batch of a list of elements; None stacks their leaves,
                so that those of shape ``S`` become one of shape ``(B, *S)``.

        Raises:
            ValueError: The size is not positive, or elements may be absent.
        """
        return build("MapDataset.batch", self, batch_size, drop_remainder, batch_fn)

    def block_map(
        self, transform: types.AnyBlockMap[T, S], block_size: int | None = None
    ) -> MapDataset[S]:
        """Map elements by a function of several elements, which may be faster.

        Results must not depend on the other elements of a call.  If the function
        raises, it is called again with each element alone.  Absent ones stay absent.

        Args:
            transform: A function that takes a list and returns a sequence of the same
                length and order; or a `transforms.BlockMap`.
            block_size: The most elements in a call, by default the transform's, or 64.

        Raises:
            TypeError: The transform cannot be called, or the size is not an integer.
            ValueError: The size is less than 1.
        """
        return build("MapDataset.block_map", self, transform, block_size)

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[[T], int],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int] | None = None,
        **how: Unpack[Bucketing],
    ) -> IterDataset[Any]:
        """Call `IterDataset.bucket_by_sequence_length` of `to_iter_dataset()`."""
        lengths = (element_length_func, bucket_boundaries, bucket_batch_sizes)
        return self.to_iter_dataset().bucket_by_sequence_length(*lengths, **how)

    def filter(self, transform: types.AnyFilter[T]) -> MapDataset[T]:
        """Replace elements by None, which iteration skips, if a predicate is false.

        Args:
            transform: A function of an element, or a `transforms.Filter`.
        """
        return build("MapDataset.filter", self, transform)

    def map(self, transform: types.AnyMap[T, S]) -> MapDataset[S]:
        """Replace each element by the result of a function.

        Args:
            transform: A function of an element, or a `transforms.Map`.
        """
        return build("MapDataset.map", self, transform)

    def map_with_index(self, transform: types.AnyMapWithIndex[T, S]) -> MapDataset[S]:
        """Map elements by a function of the index over all epochs and the element.

        Args:
            transform: A function ``f(index, element)``, or a `transforms.MapWithIndex`.
        """
        return build("MapDataset.map_with_index", self, transform)

    def random_map(
        self, transform: types.AnyRandomMap[T, S], *, seed: int | None = None
    ) -> MapDataset[S]:
        """Map elements by a function of the element and a random generator.

        Random numbers depend on the seed and the index.  Do not keep the generator.

        Args:
            transform: The function, or a `transforms.RandomMap`.
            seed: By default derived from the nearest `seed` before this step.

        Raises:
            ValueError: `seed` is None and no earlier step has a seed.
        """
        return build("MapDataset.random_map", self, transform, seed)

    def repeat(
        self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True
    ) -> MapDataset[T]:
        """Make one epoch of several.

        Args:
            num_epochs: The number of epochs; None for no end.
            reseed_each_epoch: Whether shuffles and random steps differ between them.
        """
        return build("MapDataset.repeat", self, num_epochs, reseed_each_epoch)

    @overload
    def shard(
        self,
        shard_options: ShardOptions,
        remainder: Literal["drop", "wrap", Remainder.DROP, Remainder.WRAP] = "drop",
        *,
        batch_size: int = 1,
    ) -> MapDataset[T]: ...
    @overload
    def shard(
        self,
        shard_options: ShardOptions,
        remainder: AnyRemainder,
        **how: Unpack[Padding],
    ) -> MapDataset[Any]: ...
    def shard(
        self,
        shard_options: ShardOptions,
        remainder: AnyRemainder = "drop",
        *,
        batch_size: int = 1,
        mask_key: str | None = None,
    ) -> MapDataset[Any]:
        """Keep the elements of one rank; all ranks have equally many.

        Rank r of R has the elements r, r + R, ... of each epoch.  Call it after a
        shuffle, and before `repeat`, `batch`, and steps that may drop elements.

        Args:
            shard_options: The rank and their number. Its drop_remainder is not used.
            remainder: What to do with elements that do not fill a batch of every rank,
                a `sharding.Remainder` or its value. "pad" adds a bool to each element:
                true for data, false for padding.
            batch_size: Elements that each rank takes at once, at least 1: the size of
                batches, times the streams of an `mp_prefetch` after them.
            mask_key: The bool's key in dicts; None makes pairs ``(element, bool)``.

        Raises:
            ValueError: An argument is out of range, or the dataset has no end.
            TypeError: An argument has the wrong type.

        Example:
            >>> rank = gristmill.sharding.ShardOptions(shard_index=1, shard_count=2)
            >>> ds = gristmill.MapDataset.range(5)
            >>> [list(ds.shard(rank, how)) for how in ("drop", "wrap", "pad")]
            [[1, 3], [1, 3, 0], [(1, True), (3, True), (0, False)]]
        """
        how = (shard_options, remainder, batch_size, mask_key)
        return build("MapDataset.shard", self, *how)

    def shuffle(self, seed: int | None = None) -> MapDataset[T]:
        """Permute each epoch by a formula that stores and reads nothing.

        Args:
            seed: In [0, 2**32); by default derived from the nearest `seed` before this.

        Raises:
            ValueError: There is no seed, or it is out of range.
        """
        return build("MapDataset.shuffle", self, seed)

    def slice(
        self, sl: builtins.slice | Sequence[int] | IndexList | MapDataset[int]
    ) -> MapDataset[T]:
        """Return a dataset of a slice or list of indices of each epoch: ``ds[a:b:c]``.

        Args:
            sl: A slice, or a sequence, an array or a `MapDataset` of ints. A dataset
                is read when its elements are needed.

        Raises:
            TypeError: The indices are not ints.
            ValueError: `sl` has another type.
        """
        return build("MapDataset.slice", self, sl)

    def to_iter_dataset(
        self, read_options: ReadOptions | None = None, *, allow_nones: bool = False
    ) -> IterDataset[T]:
        """Make a dataset that is iterated over for one epoch, in the order of indices.

        Args:
            read_options: Threads that compute elements ahead if reading waits.
            allow_nones: Whether to return None for absent elements.
        """
        how = {"read_options": read_options, "allow_nones": allow_nones}
        return build("MapDataset.to_iter_dataset", self, **how)
