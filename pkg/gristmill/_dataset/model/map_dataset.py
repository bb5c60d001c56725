"""MapDataset: a dataset whose elements have indices."""

# mypy: disable-error-code="no-any-return"
# `build` gives what is registered, of any class.

from __future__ import annotations

import abc
import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Never, Unpack, overload

import numpy.typing as npt

from gristmill._base.types import (
    AnyBlockMap,
    AnyFilter,
    AnyMap,
    AnyMapWithIndex,
    AnyRandomMap,
    Array,
    D,
    IndexList,
    K,
    S,
    Scalar,
    T,
)
from gristmill._dataset.model.batch_arguments import Bucketing, Stacking
from gristmill._dataset.model.iter_dataset import IterDataset

# Old pickles of users' classes look for it beside the other one.
from gristmill._dataset.model.iter_dataset import IterDatasetMeta as IterDatasetMeta
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import Dataset, build
from gristmill._dataset.model.options import DatasetOptions
from gristmill.options import ReadOptions
from gristmill.sharding import AnyRemainder, Remainder, ShardOptions
from gristmill.sources import Columns, RandomAccessDataSource
from gristmill.transforms import AnyTransform, DatasetSelectionMap


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
        datasets: Sequence[MapDataset[S]] | Mapping[str, MapDataset[S]],
        weights: Sequence[float] | Mapping[str, float] | None = None,
    ) -> MapDataset[S]:
        """A dataset that takes from several in turn, in proportion to weights.

        It ends with the first part that would run out.  Shuffle and repeat the parts.

        Args:
            datasets: The parts, at least 1, or a mapping of names to them.
            weights: As many positive numbers, with the same names; None for equal ones.

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
        selection_map: DatasetSelectionMap,
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


class MapDataset(Dataset, Generic[T], metaclass=MapDatasetMeta):
    """A dataset whose elements have indices.

    ``len(ds)`` is one epoch; ``ds[i]`` works for every integer, and epoch ``i //
    len(ds)`` has its own shuffles and random draws.  None stands for an element that
    a filter dropped.  Datasets are immutable: a method returns a new one.

    A subclass calls ``super().__init__(parents)`` and implements ``__len__`` and
    ``__getitem__``, which also takes slices (``return self.slice(index)``).

    Args:
        parents: The datasets that this one is made of.

    Example:
        >>> ds = gristmill.MapDataset.range(10).shuffle(seed=1).map(lambda x: x * 10)
        >>> ds[0], len(ds[::3])
        (50, 4)
    """

    def __init__(
        self, parents: MapDataset[Any] | Sequence[MapDataset[Any]] = ()
    ) -> None:
        super().__init__(parents)

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many indices one epoch has."""

    @overload
    def __getitem__(
        self, index: builtins.slice | IndexList | MapDataset[int]
    ) -> MapDataset[T]: ...

    @overload
    def __getitem__(self, index: int) -> T | None: ...

    @abc.abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """Return the element at an index, or None if it is absent.

        For a slice or several indices, return a dataset; see `slice`.
        """

    def _computing_with(self, threads: int) -> MapDataset[T]:
        """This, where what computes its elements uses no more threads than these."""
        return self

    def _getitems(self, indices: Sequence[int]) -> Sequence[T | None]:
        """The elements at some indices; a subclass may read them together."""
        return [self[int(index)] for index in indices]

    def __iter__(self) -> DatasetIterator[T]:
        return iter(self.to_iter_dataset())

    def apply(
        self, transformations: AnyTransform | Sequence[AnyTransform]
    ) -> MapDataset[Any]:
        """Apply transforms such as `transforms.Map`, in this order."""
        return build("MapDataset.apply", self, transformations)

    def at_epoch(self, epoch: int) -> IterDataset[T]:
        """As `IterDataset.at_epoch`, of `to_iter_dataset()`."""
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

    # Any alone is Never, too: what nothing is known of comes here.
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
            drop_remainder: Whether a last, shorter batch is left out.
            batch_fn: Makes a batch of a list of elements; None stacks their leaves,
                so that those of shape ``S`` become one of shape ``(B, *S)``.

        Raises:
            ValueError: The size is not positive, or elements may be absent.
        """
        return build("MapDataset.batch", self, batch_size, drop_remainder, batch_fn)

    def block_map(
        self, transform: AnyBlockMap[T, S], block_size: int | None = None
    ) -> MapDataset[S]:
        """As `map`, with a function of several elements: faster where it is so.

        How many come together is not promised, so what becomes of an element must not
        depend on the others; where the function raises, it is called again with each
        alone.  Absent elements stay so.

        Args:
            transform: Returns a sequence of as many elements as the list that it gets,
                in their order; or a `transforms.BlockMap`.
            block_size: The most that come together, at least 1; by default that of the
                transform, or 64.

        Raises:
            TypeError: The transform cannot be called, or the size is no integer.
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
        """As `IterDataset.bucket_by_sequence_length`, of `to_iter_dataset()`."""
        sizes = (bucket_boundaries, bucket_batch_sizes)
        ds = self.to_iter_dataset()
        return ds.bucket_by_sequence_length(element_length_func, *sizes, **how)

    def filter(self, transform: AnyFilter[T]) -> MapDataset[T]:
        """Make the elements absent for which a predicate is false.

        The length stays: ``ds[i]`` is None there, and iteration skips it.
        """
        return build("MapDataset.filter", self, transform)

    def map(self, transform: AnyMap[T, S]) -> MapDataset[S]:
        """Replace each element by what a function makes of it."""
        return build("MapDataset.map", self, transform)

    def map_with_index(self, transform: AnyMapWithIndex[T, S]) -> MapDataset[S]:
        """As `map`, with a function of the index (epoch included) and the element."""
        return build("MapDataset.map_with_index", self, transform)

    def random_map(
        self, transform: AnyRandomMap[T, S], *, seed: int | None = None
    ) -> MapDataset[S]:
        """As `map`, with a function of the element and a random generator.

        What is drawn depends on the seed and the index alone.  The generator is used
        again afterwards, so the function must not keep it.

        Args:
            transform: The function, or a `transforms.RandomMap`.
            seed: By default made of the nearest `seed` above.

        Raises:
            ValueError: There is no seed.
        """
        return build("MapDataset.random_map", self, transform, seed)

    def repeat(
        self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True
    ) -> MapDataset[T]:
        """Make one epoch of several.

        Args:
            num_epochs: How many; None for no end.
            reseed_each_epoch: Whether shuffles and random steps differ between them.
        """
        return build("MapDataset.repeat", self, num_epochs, reseed_each_epoch)

    def seed(self, seed: int) -> MapDataset[T]:
        """Give random steps behind this one, up to the next seed, their seed."""
        return build("MapDataset.seed", self, seed=seed)

    def set_options(self, options: DatasetOptions) -> MapDataset[T]:
        """Set options for all iterators that are made of this; see `DatasetOptions`."""
        return build("MapDataset.set_options", self, options)

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
        *,
        batch_size: int = 1,
        mask_key: str | None = None,
    ) -> MapDataset[Any]: ...

    def shard(
        self,
        shard_options: ShardOptions,
        remainder: AnyRemainder = "drop",
        *,
        batch_size: int = 1,
        mask_key: str | None = None,
    ) -> MapDataset[Any]:
        """The elements of one rank, as many as any other rank has.

        Rank r of R has the elements r, r + R, ... of each epoch.  Call it behind a
        shuffle, and before `repeat`, `batch`, and what may drop elements.

        Args:
            shard_options: Which rank of how many. Its drop_remainder is not used.
            remainder: What becomes of elements that do not fill a batch of every rank,
                a `sharding.Remainder` or its value. With "pad" each element comes with
                a bool that is true where it is data.
            batch_size: Elements that each rank takes at once, at least 1: the size of
                batches, times the streams of an `mp_prefetch` behind them. With 1 all
                ranks have equally many elements.
            mask_key: Where elements, which are dicts then, get the bool of "pad"; None
                makes pairs ``(element, bool)`` of elements of any kind.

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
        """Permute each epoch, by formula: nothing is stored, nothing is read.

        Args:
            seed: In [0, 2**32); by default made of the nearest `seed` above.

        Raises:
            ValueError: There is no seed, or it is out of range.
        """
        return build("MapDataset.shuffle", self, seed)

    def slice(
        self, sl: builtins.slice | Sequence[int] | IndexList | MapDataset[int]
    ) -> MapDataset[T]:
        """Return the elements at the indices of a slice or a list, of each epoch.

        ``ds[a:b:c]`` and ``ds[[i, j, k]]`` do the same.

        Args:
            sl: A slice, or a sequence, an array or a `MapDataset` of ints. A dataset of
                ints is read when its elements are needed.

        Raises:
            TypeError: The indices are not ints.
            ValueError: `sl` is something else.

        Example:
            >>> list(gristmill.MapDataset.range(10).slice([3, 1]))
            [3, 1]
        """
        return build("MapDataset.slice", self, sl)

    def to_iter_dataset(
        self, read_options: ReadOptions | None = None, *, allow_nones: bool = False
    ) -> IterDataset[T]:
        """A dataset that is iterated over, in the order of indices, for one epoch.

        Args:
            read_options: Threads that make elements ahead where that waits.
            allow_nones: Whether absent elements are given out as None.
        """
        how = {"read_options": read_options, "allow_nones": allow_nones}
        return build("MapDataset.to_iter_dataset", self, **how)
