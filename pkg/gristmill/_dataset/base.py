"""MapDataset and IterDataset: what all datasets have in common."""

from __future__ import annotations

import abc
import builtins
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Never, TypedDict, Unpack, overload

import numpy.typing as npt

from gristmill._dataset.checks import check_parents
from gristmill._dataset.factories import IterDatasetMeta, MapDatasetMeta
from gristmill._dataset.iterator import DatasetIterator
from gristmill._dataset.node import Dataset
from gristmill._dataset.opening import Opening
from gristmill._dataset.options import DatasetOptions
from gristmill._types import (
    AnyFilter,
    AnyMap,
    AnyMapWithIndex,
    AnyRandomMap,
    Array,
    D,
    K,
    S,
    Scalar,
    T,
)
from gristmill.options import MultiprocessingOptions, ReadOptions
from gristmill.transforms import AnyTransform


class Stacking(TypedDict, total=False):
    """Arguments of `batch` without a function: leaves are stacked."""

    drop_remainder: bool
    batch_fn: None


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
        super().__init__()
        if isinstance(parents, Dataset) or not isinstance(parents, Iterable):
            parents = (parents,)
        self._parents: Sequence[Any] = tuple(parents)
        check_parents(self, self._parents, Dataset)

    @property
    def parents(self) -> Sequence[Any]:
        """The datasets that this one is made of."""
        return self._parents

    @property
    def _parent(self) -> Any:
        (parent,) = self._parents
        return parent

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many indices one epoch has."""

    @overload
    def __getitem__(self, index: builtins.slice) -> MapDataset[T]: ...

    @overload
    def __getitem__(self, index: int) -> T | None: ...

    @abc.abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """The element at an index, None if it is absent; for a slice, a dataset."""

    def _getitems(self, indices: Sequence[int]) -> Sequence[T | None]:
        """The elements at some indices; a subclass may read them together."""
        return [self[int(index)] for index in indices]

    def __iter__(self) -> DatasetIterator[T]:
        return iter(self.to_iter_dataset())

    def apply(
        self, transformations: AnyTransform | Sequence[AnyTransform]
    ) -> MapDataset[Any]:
        """Apply transforms such as `transforms.Map`, in this order."""
        return nodes.apply.apply_transformations(self, transformations)

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
        return nodes.batch.BatchMapDataset(self, batch_size, drop_remainder, batch_fn)

    def filter(self, transform: AnyFilter[T]) -> MapDataset[T]:
        """Make the elements absent for which a predicate is false.

        The length stays: ``ds[i]`` is None there, and iteration skips it.
        """
        return nodes.filter.FilterMapDataset(self, transform)

    def map(self, transform: AnyMap[T, S]) -> MapDataset[S]:
        """Replace each element by what a function makes of it."""
        return nodes.map.MapMapDataset(self, transform)

    def map_with_index(self, transform: AnyMapWithIndex[T, S]) -> MapDataset[S]:
        """As `map`, with a function of the index (epoch included) and the element."""
        return nodes.map.MapWithIndexMapDataset(self, transform)

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
        return nodes.map.RandomMapMapDataset(self, transform, seed)

    def repeat(
        self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True
    ) -> MapDataset[T]:
        """Make one epoch of several.

        Args:
            num_epochs: How many; None for no end.
            reseed_each_epoch: Whether shuffles and random steps differ between them.
        """
        return nodes.order.RepeatMapDataset(self, num_epochs, reseed_each_epoch)

    def seed(self, seed: int) -> MapDataset[T]:
        """Give random steps behind this one, up to the next seed, their seed."""
        return nodes.seed.WithSeedMapDataset(self, seed=seed)

    def set_options(self, options: DatasetOptions) -> MapDataset[T]:
        """Set options for all iterators that are made of this; see `DatasetOptions`."""
        return nodes.with_options.WithOptionsMapDataset(self, options)

    def shuffle(self, seed: int | None = None) -> MapDataset[T]:
        """Permute each epoch, by formula: nothing is stored, nothing is read.

        Args:
            seed: In [0, 2**32); by default made of the nearest `seed` above.

        Raises:
            ValueError: There is no seed, or it is out of range.
        """
        return nodes.order.ShuffleMapDataset(self, seed)

    def slice(self, sl: builtins.slice) -> MapDataset[T]:
        """As ``ds[a:b:c]``: the indices of a slice, of each epoch."""
        return nodes.order.SliceMapDataset(self, sl)

    def to_iter_dataset(
        self, read_options: ReadOptions | None = None, *, allow_nones: bool = False
    ) -> IterDataset[T]:
        """A dataset that is iterated over, in the order of indices, for one epoch.

        Args:
            read_options: Threads that compute ahead where elements are slow.
            allow_nones: Whether absent elements are given out as None.
        """
        return nodes.to_iter.PrefetchIterDataset(
            self, read_options=read_options, allow_nones=allow_nones
        )


class IterDataset(
    Opening[T], Dataset, Iterable[T], Generic[T], metaclass=IterDatasetMeta
):
    """A dataset that is iterated over; each ``iter(ds)`` begins anew.

    A subclass calls ``super().__init__(parents)`` and implements ``__iter__``, which
    returns a `DatasetIterator`.

    Args:
        parents: The datasets that this one is made of.

    Example:
        >>> ds = gristmill.MapDataset.range(5).to_iter_dataset()
        >>> [batch.tolist() for batch in ds.filter(lambda x: x != 2).batch(2)]
        [[0, 1], [3, 4]]
    """

    def __init__(self, parents: Dataset | Sequence[Dataset] = ()) -> None:
        super().__init__()
        if isinstance(parents, Dataset) or not isinstance(parents, Iterable):
            parents = (parents,)
        self._parents: Sequence[Any] = tuple(parents)
        check_parents(self, self._parents, Dataset)

    @property
    def parents(self) -> Sequence[Any]:
        """The datasets that this one is made of."""
        return self._parents

    @property
    def _parent(self) -> Any:
        (parent,) = self._parents
        return parent

    @abc.abstractmethod
    def __iter__(self) -> DatasetIterator[T]:
        """An iterator at the beginning."""

    def apply(
        self, transformations: AnyTransform | Sequence[AnyTransform]
    ) -> IterDataset[Any]:
        """Apply transforms such as `transforms.Map`, in this order."""
        return nodes.apply.apply_transformations(self, transformations)

    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[list[T]], S],
    ) -> IterDataset[S]: ...

    # Any alone is Never, too: what nothing is known of comes here.
    @overload
    def batch(
        self: IterDataset[Never], batch_size: int, **how: Unpack[Stacking]
    ) -> IterDataset[Any]: ...

    @overload
    def batch(
        self: IterDataset[Array[D]], batch_size: int, **how: Unpack[Stacking]
    ) -> IterDataset[npt.NDArray[D]]: ...

    @overload
    def batch(
        self: IterDataset[Scalar], batch_size: int, **how: Unpack[Stacking]
    ) -> IterDataset[npt.NDArray[Any]]: ...

    @overload
    def batch(
        self: IterDataset[dict[K, Never]], batch_size: int, **how: Unpack[Stacking]
    ) -> IterDataset[dict[K, Any]]: ...

    @overload
    def batch(
        self: IterDataset[dict[K, Array[D]]], batch_size: int, **how: Unpack[Stacking]
    ) -> IterDataset[dict[K, npt.NDArray[D]]]: ...

    @overload
    def batch(self, batch_size: int, **how: Unpack[Stacking]) -> IterDataset[Any]: ...

    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[list[Any]], Any] | None = None,
    ) -> IterDataset[Any]:
        """Group consecutive elements.

        Args:
            batch_size: Elements per batch, ``B``, at least 1.
            drop_remainder: Whether a last, shorter batch is left out.
            batch_fn: Makes a batch of a list of elements; None stacks their leaves,
                so that those of shape ``S`` become one of shape ``(B, *S)``.
        """
        return nodes.batch.BatchIterDataset(self, batch_size, drop_remainder, batch_fn)

    def filter(self, transform: AnyFilter[T]) -> IterDataset[T]:
        """Keep the elements for which a predicate is true."""
        return nodes.filter.FilterIterDataset(self, transform)

    def map(self, transform: AnyMap[T, S]) -> IterDataset[S]:
        """Replace each element by what a function makes of it."""
        return nodes.map.MapIterDataset(self, transform)

    def map_with_index(self, transform: AnyMapWithIndex[T, S]) -> IterDataset[S]:
        """As `map`, with a function of a count from 0 and the element."""
        return nodes.map.MapWithIndexIterDataset(self, transform)

    def mp_prefetch(
        self,
        options: MultiprocessingOptions | None = None,
        worker_init_fn: Callable[[int, int], None] | None = None,
        sequential_slice: bool = False,
        *,
        streams: int | None = None,
    ) -> IterDataset[T]:
        """Compute the chain up to here in worker processes.

        It is cut into `streams`, whose elements are taken in turn: stream s has every
        S-th element of each `MapDataset`, and runs all that follows it, batches
        included.  A state can be restored with any number of workers.

        Args:
            options: How many workers, by default 10, and how many elements each may be
                ahead.  With 0 workers this returns the dataset itself.
            worker_init_fn: Called with (worker, workers) in each worker, before
                anything is computed there.
            sequential_slice: Whether streams are contiguous pieces of the sources.
            streams: By default as many as workers.  Set it to get the same elements
                with any number of workers, 0 included.

        Raises:
            ValueError: An option is out of range.

        Example:
            >>> ds = gristmill.MapDataset.range(6).to_iter_dataset().batch(2)
            >>> ds = ds.mp_prefetch(gristmill.MultiprocessingOptions(num_workers=2))
            >>> [batch.tolist() for batch in ds]
            [[0, 2], [1, 3], [4], [5]]
        """
        prefetched: IterDataset[T] = nodes.process_prefetch.multiprocess_prefetch(
            self, options, worker_init_fn, sequential_slice, streams
        )
        return prefetched

    def prefetch(
        self, multiprocessing_options: MultiprocessingOptions
    ) -> IterDataset[T]:
        """Compute the chain in workers; deprecated: use `mp_prefetch`."""
        warnings.warn(
            "Please use `mp_prefetch` instead.", DeprecationWarning, stacklevel=2
        )
        return self.mp_prefetch(multiprocessing_options)

    def random_map(
        self, transform: AnyRandomMap[T, S], *, seed: int | None = None
    ) -> IterDataset[S]:
        """As `map`, with a function of the element and a random generator.

        Args:
            transform: The function, or a `transforms.RandomMap`.
            seed: By default made of the nearest `seed` above.

        Raises:
            ValueError: There is no seed.
        """
        return nodes.map.RandomMapIterDataset(self, transform, seed)

    def set_options(self, options: DatasetOptions) -> IterDataset[T]:
        """Set options for the whole chain; see `DatasetOptions`."""
        return nodes.with_options.WithOptionsIterDataset(self, options)

    def with_options(self, options: DatasetOptions) -> IterDataset[T]:
        """Another name of `set_options`."""
        return self.set_options(options)

    def seed(self, seed: int) -> IterDataset[T]:
        """Give random steps behind this one, up to the next seed, their seed."""
        return nodes.seed.WithSeedIterDataset(self, seed=seed)


# At the end, because the nodes are made of the classes above.
from gristmill._dataset import nodes  # noqa: E402
