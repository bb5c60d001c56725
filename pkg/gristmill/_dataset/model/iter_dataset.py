"""IterDataset: a dataset that is iterated over."""

# mypy: disable-error-code="no-any-return"
# `build` returns Any: nodes are registered by name.

from __future__ import annotations

import abc
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Never, Unpack, overload

import numpy.typing as npt

from gristmill._base import types
from gristmill._base.types import Array, D, K, S, Scalar, T
from gristmill._dataset.model import observer
from gristmill._dataset.model.batch_arguments import Bucketing, Stacking
from gristmill._dataset.model.configurable import Configurable
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.known_length import HasLength
from gristmill._dataset.model.mixing_methods import MixesIterDatasets
from gristmill._dataset.model.node import Dataset, build
from gristmill._dataset.model.options import DatasetOptions
from gristmill._dataset.model.replayable import Replayable
from gristmill._dataset.model.reportable import Reportable
from gristmill._engine.workers import WorkerBackend
from gristmill.bad_records import OnError
from gristmill.options import MultiprocessingOptions
from gristmill.transforms import AnyTransform


class IterDatasetMeta(MixesIterDatasets):
    """Defines the class methods that create an `IterDataset`."""

    def from_iterable(
        cls, iterable: Iterable[S] | Callable[..., Iterable[S]], *, replay: bool = False
    ) -> IterDataset[S]:
        """Make a dataset of a generator function, or of any iterable.

        Each iterator over the dataset begins a new iteration.  A state has the result
        of `state_dict`, or `get_state`, of the iterable and of its iterator, as in
        torchdata and in Hugging Face's datasets.  An iterable with a state is copied
        for each iterator.  `at_epoch` calls the iterable's `set_epoch`, if any.

        Each worker reads its share: what a function with parameters `shard_index` and
        `shard_count` returns, or an iterable's ``shard(num_shards, index)``.

        Args:
            iterable: An iterable that can be iterated over again, or a function that
                returns a new iterable, such as a generator function.
            replay: Whether restoring a state reads the earlier elements again, without
                a state of the iterable.  Each iteration must have the same elements.

        Raises:
            TypeError: The iterable works only once, like a generator, or the function
                needs other arguments.  `get_state` raises it without state or `replay`.

        Example:
            >>> def count(shard_index, shard_count):
            ...     yield from range(shard_index, 6, shard_count)
            >>> ds = gristmill.IterDataset.from_iterable(count, replay=True)
            >>> [batch.tolist() for batch in ds.batch(4)]
            [[0, 1, 2, 3], [4, 5]]
        """
        return build("IterDataset.from_iterable", iterable, replay)

    def zip(
        cls, datasets: Sequence[IterDataset[Any]], *, strict: bool = True
    ) -> IterDataset[tuple[Any, ...]]:
        """Make a dataset of tuples of one element of each part.

        Args:
            datasets: The parts, at least 1.
            strict: Whether to raise ValueError if the parts do not end together;
                otherwise the dataset ends with the shortest.
        """
        return build("IterDataset.zip", datasets, strict=strict)


class IterDataset(
    HasLength,
    Configurable["IterDataset[T]"],
    Replayable[T],
    Reportable[T],
    Dataset,
    Iterable[T],
    metaclass=IterDatasetMeta,
):
    """A dataset that is iterated over; each ``iter(ds)`` starts at the beginning.

    Datasets are immutable: a method returns a new one.  A `transform` is a function, or
    an object of the class of that kind in `gristmill.transforms`: ``map`` takes a
    `transforms.Map`, ``filter`` a `transforms.Filter`.

    A subclass calls ``super().__init__(parents)`` and implements ``__iter__``, which
    returns a `DatasetIterator`.

    Args:
        parents: The datasets that this one is made of.

    Example:
        >>> ds = gristmill.MapDataset.range(5).to_iter_dataset()
        >>> [batch.tolist() for batch in ds.filter(lambda x: x != 2).batch(2)]
        [[0, 1], [3, 4]]
    """

    _FACE = "IterDataset"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__iter__" in cls.__dict__:
            iter_method: Any = observer.observe_outermost(cls.__dict__["__iter__"])
            cls.__iter__ = iter_method  # type: ignore[method-assign]

    @abc.abstractmethod
    def __iter__(self) -> DatasetIterator[T]:
        """Return an iterator at the beginning."""

    def apply(
        self, transformations: AnyTransform | Sequence[AnyTransform]
    ) -> IterDataset[Any]:
        """Apply transforms, in this order.

        Args:
            transformations: A transform such as a `transforms.Map`, or several.
        """
        return build("IterDataset.apply", self, transformations)

    def at_epoch(self, epoch: int) -> IterDataset[T]:
        """Return the elements of one epoch, with its order and its random draws.

        Each ``iter(ds)`` returns the same elements.  In epoch e every `MapDataset` at
        the start of the chain has its elements ``[e * len, (e + 1) * len)``, as in
        ``MapDataset.repeat``; random steps of an `IterDataset` draw other numbers.
        Call it last.  A restored state continues in its epoch.

        Args:
            epoch: At least 0; the dataset itself has epoch 0.

        Raises:
            TypeError: The epoch is not an int.
            ValueError: The epoch is negative; or, in iteration, the dataset is endless.

        Example:
            >>> ds = gristmill.MapDataset.range(4).shuffle(seed=1).to_iter_dataset()
            >>> [list(ds.at_epoch(epoch)) for epoch in range(2)]
            [[1, 2, 3, 0], [0, 3, 1, 2]]
        """
        return build("IterDataset.at_epoch", self, epoch)

    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[list[T]], S],
    ) -> IterDataset[S]: ...
    # Any also matches Never: elements of unknown type come here.
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
            drop_remainder: Whether to drop a last, shorter batch.
            batch_fn: Makes a batch of a list of elements; None stacks their leaves,
                so that those of shape ``S`` become one of shape ``(B, *S)``.
        """
        return build("IterDataset.batch", self, batch_size, drop_remainder, batch_fn)

    def block_map(
        self, transform: types.AnyBlockMap[T, S], block_size: int | None = None
    ) -> IterDataset[S]:
        """Map elements by a function of several; see `MapDataset.block_map`.

        Args:
            transform: The function, or a `transforms.BlockMap`.
            block_size: The most elements in a call, by default the transform's, or 64.
        """
        return build("IterDataset.block_map", self, transform, block_size)

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[[T], int],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int] | None = None,
        **how: Unpack[Bucketing],
    ) -> IterDataset[Any]:
        """Batch elements of similar lengths, to keep padding small.

        Like in tf.data, each element waits in the bucket of its length, and a full
        bucket becomes the next batch.  Buckets that are not full come last, the
        shortest lengths first.  Restoring reads waiting elements again.

        Args:
            element_length_func: Returns the length of an element, at least 0.
            bucket_boundaries: Ascending lengths, at least 1, that start a new bucket.
            bucket_batch_sizes: Elements per batch, one more than there are boundaries.
            **how: By name:

                - max_tokens: Instead of sizes, the most rows times length of a batch.
                - padding_values: One value for all leaves, or for each; by default 0.
                - pad_to_bucket_boundary: Whether to pad to the bucket's boundary less
                  1, rather than to the longest of the batch.
                - drop_remainder: Whether to drop batches that are not full.
                - batch_fn: Makes a batch of a list of elements instead;
                  `gristmill.batching.make_batch` stacks them without padding.

        Raises:
            ValueError: An argument is out of range; or, in iteration, an element is
                longer than any bucket.  That element is dropped.
            TypeError: An argument has the wrong type.

        Example:
            >>> words = gristmill.MapDataset.source(["a", "bcd", "ef", "ghi", "j"])
            >>> ds = words.to_iter_dataset().map(lambda word: np.array([*word]))
            >>> ds = ds.bucket_by_sequence_length(len, [3], [3, 2])
            >>> [batch.tolist() for batch in ds]
            [[['b', 'c', 'd'], ['g', 'h', 'i']], [['a', ''], ['e', 'f'], ['j', '']]]
        """
        lengths = (element_length_func, bucket_boundaries, bucket_batch_sizes)
        return build("IterDataset.bucket_by_sequence_length", self, *lengths, **how)

    def filter(self, transform: types.AnyFilter[T]) -> IterDataset[T]:
        """Keep the elements for which a predicate is true.

        Args:
            transform: A function of an element, or a `transforms.Filter`.
        """
        return build("IterDataset.filter", self, transform)

    def map(self, transform: types.AnyMap[T, S]) -> IterDataset[S]:
        """Replace each element by the result of a function.

        Args:
            transform: A function of an element, or a `transforms.Map`.
        """
        return build("IterDataset.map", self, transform)

    def map_with_index(self, transform: types.AnyMapWithIndex[T, S]) -> IterDataset[S]:
        """Map elements by a function of their position n, from 0, and the element.

        Args:
            transform: A function ``f(n, element)``, or a `transforms.MapWithIndex`.
        """
        return build("IterDataset.map_with_index", self, transform)

    def mp_prefetch(
        self,
        options: MultiprocessingOptions | None = None,
        worker_init_fn: Callable[[int, int], None] | None = None,
        sequential_slice: bool = False,
        *,
        streams: int | None = None,
        workers: WorkerBackend | None = None,
    ) -> IterDataset[T]:
        """Compute the chain up to here in worker processes.

        The chain is split into `streams`, which are read in turn.  Stream s has every
        S-th element of each `MapDataset`, and runs the steps after it, batches
        included.  A state can be restored with any number of workers.

        Args:
            options: The number of workers, by default 10, and the number of elements
                that each may be ahead.  With 0 workers this returns the dataset itself.
                "auto" workers are one at first, then as many as the consumer needs, see
                `DataLoader`.
            worker_init_fn: Called with (worker, workers) first in each worker.
            sequential_slice: Whether streams are contiguous pieces of the sources.
            streams: By default the number of workers.  Set it to get the same elements
                with any number of workers, 0 included.  With "auto" it is 1, or 8 if
                only one worker can compute each stream, such as one with a filter.
            workers: A `gristmill.ray.RayWorkers` that runs the workers; by default they
                are processes of this machine.  The order is the same.

        Raises:
            ValueError: An option is out of range.

        Example:
            >>> ds = gristmill.MapDataset.range(6).to_iter_dataset().batch(2)
            >>> ds = ds.mp_prefetch(gristmill.MultiprocessingOptions(num_workers=2))
            >>> [batch.tolist() for batch in ds]
            [[0, 2], [1, 3], [4], [5]]
        """
        how = (options, worker_init_fn, sequential_slice, streams, workers)
        return build("IterDataset.mp_prefetch", self, *how)

    def on_error(
        self,
        on_error: OnError,
        *,
        max_errors: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
    ) -> IterDataset[T]:
        """Leave out elements that fail, or replace them.

        An element fails if its record cannot be read, or if a step before this one
        raises for it.  Errors of batches, of iterables and of your own iterators are
        raised as before.  States are those of the chain without this node.

        Args:
            on_error: "skip" leaves out an element that fails.  "substitute" takes the
                element at another index instead, with the generator of that index.
            max_errors: Bad records that an iterator accepts, None for any number.  It
                raises `TooManyErrors` in place of each further one.
            quarantine: Path of a log, to which each bad record adds a line of JSON.

        Returns:
            The dataset.  ``errors`` of its iterators are the bad records so far.

        Raises:
            ValueError: An argument is invalid, or the chain has batches or workers.

        Example:
            >>> ds = gristmill.MapDataset.source([2, 0, 4]).map(lambda x: 8 // x)
            >>> iterator = iter(ds.to_iter_dataset().on_error("skip").batch(2))
            >>> next(iterator).tolist(), iterator.errors.last[0].key
            ([4, 2], 1)
        """
        return build("IterDataset.on_error", self, on_error, max_errors, quarantine)

    def prefetch(
        self, multiprocessing_options: MultiprocessingOptions
    ) -> IterDataset[T]:
        """Compute elements in workers, as `mp_prefetch` does; deprecated.

        Args:
            multiprocessing_options: The number of workers, and their options.
        """
        text = "Please use `mp_prefetch` instead."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.mp_prefetch(multiprocessing_options)

    def random_map(
        self, transform: types.AnyRandomMap[T, S], *, seed: int | None = None
    ) -> IterDataset[S]:
        """Map elements by a function of the element and a random generator.

        Args:
            transform: The function, or a `transforms.RandomMap`.
            seed: By default derived from the nearest `seed` before this step.

        Raises:
            ValueError: `seed` is None and no earlier step has a seed.
        """
        return build("IterDataset.random_map", self, transform, seed)

    def with_options(self, options: DatasetOptions) -> IterDataset[T]:
        """Set options for the whole chain, as `set_options` does; Grain's old name.

        Args:
            options: Those that are set override the options of earlier nodes.
        """
        return self.set_options(options)
