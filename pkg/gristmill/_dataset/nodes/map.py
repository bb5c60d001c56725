"""Datasets that call a function with each element, to map or filter it."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, ClassVar, Self, SupportsIndex

import numpy as np

from gristmill import transforms
from gristmill._base import log
from gristmill._base.argument_checks import check_callable, check_seed_of_draws, kind
from gristmill._base.epoch_context import epoch_context
from gristmill._base.object_repr import call_text
from gristmill._base.types import T
from gristmill._dataset.model.blocks import StepCall, StepMapDataset
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    ElementCountingIterator,
    NodeIterator,
)
from gristmill._dataset.model.names import transform_name
from gristmill._dataset.model.node import Dataset, ParentSpec, builds
from gristmill._dataset.model.options import DatasetOptions
from gristmill._hot import iterators, steps
from gristmill._hot.draw import OpDraws, restart

# The dataset's method for each kind of transform.  `call_of` calls a transform's method
# of the same name.
METHODS: dict[type, str] = {
    transforms.Map: "map",
    transforms.BlockMap: "block_map",
    transforms.MapWithIndex: "map_with_index",
    transforms.RandomMap: "random_map",
    transforms.Filter: "filter",
    transforms.FlatMap: "apply",
    transforms.Batch: "batch",
}
WARNING_INTERVAL_S = 60.0
# The monotonic time of the last warning about each transformation, in s.  Any thread
# may set it; two threads at once may both warn.
_last_warning_s: dict[str, float] = {}


class CallBase(Dataset):
    """A dataset of either kind that calls a function or a transform's method."""

    # The kind of transform that it takes.
    _TRANSFORM_TYPE: ClassVar[type] = transforms.Map

    def __init__(self, parent: Any, transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform
        self._call = call_of(transform, self._TRANSFORM_TYPE)

    @functools.cached_property
    def _transform_name(self) -> str:
        return transform_name(self._transform)

    def _arguments_text(self) -> str:
        return f"(transform={self._transform_name})"


def call_of(transform: Any, expected: type) -> Any:
    """Return the function to call: a transform's method, or the function itself.

    Raises:
        TypeError: The transform is neither. The message names the method for it.
    """
    if isinstance(transform, expected):
        return getattr(transform, METHODS[expected])
    if isinstance(transform, type) and issubclass(transform, tuple(METHODS)):
        raise TypeError(
            f"{METHODS[expected]} got {kind(transform)}. Pass an instance of it:"
            f" {transform.__name__}()."
        )
    other = next((each for each in METHODS if isinstance(transform, each)), None)
    advice = f" Pass a function, or an instance of transforms.{expected.__name__}."
    if other is not None:
        advice = f" It is a transforms.{other.__name__}: use ds.{METHODS[other]}(...)."
    check_callable(f"The transform of {METHODS[expected]}", transform, advice)
    return transform


class MapBase(CallBase):
    """A map dataset of either kind."""

    @property
    def _element_spec(self) -> Any:
        name = self._transform_name
        if not callable(getattr(self._transform, "output_spec", None)):
            raise ValueError(
                f"Cannot infer element spec for transform {name} because it does not"
                f" implement `output_spec` method. Implement `{name}.output_spec(self,"
                " input_spec: PyTree[ShapeDtypeStructProtocol]) ->"
                " PyTree[ShapeDtypeStructProtocol]` to enable element spec inference."
            )
        return self._transform.output_spec(self._parent._element_spec)


class MapWithIndexBase(MapBase):
    """A map dataset whose function also takes the index."""

    _TRANSFORM_TYPE = transforms.MapWithIndex

    @functools.cached_property
    def _transform_name(self) -> str:
        return transform_name(self._call)


class RandomMapBase(MapBase):
    """A map dataset whose function also takes a random generator."""

    _TRANSFORM_TYPE = transforms.RandomMap
    _random = "draws"

    def __init__(self, parent: Any, transform: Any, seed: int | None = None) -> None:
        super().__init__(parent, transform)
        check_seed_of_draws("seed", seed)
        self._seed = self._default_seed if seed is None else seed
        if self._seed is None:
            raise ValueError(
                "`random_map` requires a seed. Please either provide it with"
                " `ds.seed(seed)` before any random transformations or pass it directly"
                " with `ds.random_map(transform, seed=seed)`."
            )


@builds("MapDataset.map")
class MapMapDataset(MapBase, StepMapDataset[T]):
    """``f(parent[i])``."""

    def _call_of_each(self) -> StepCall:
        return steps.MAP, self._call, self._note_failure, None


@builds("MapDataset.map_with_index")
class MapWithIndexMapDataset(MapWithIndexBase, StepMapDataset[T]):
    """``f(i, parent[i])``."""

    def _call_of_each(self) -> StepCall:
        return steps.MAP_WITH_INDEX, self._call, self._note_failure, None


@builds("MapDataset.random_map")
class RandomMapMapDataset(RandomMapBase, StepMapDataset[T]):
    """``f(parent[i], rng)``, with the generator of index i."""

    @functools.cached_property
    def _draws(self) -> _ThreadDraws:
        return _ThreadDraws(self._seed)

    def _call_of_each(self) -> StepCall:
        draws = self._draws.current
        if draws.op_seed != epoch_context.epoch:
            draws = self._draws.set_epoch(epoch_context.epoch)
        return steps.RANDOM_MAP, self._call, self._note_failure, draws


@builds("IterDataset.map")
class MapIterDataset(MapBase, IterDataset[T]):
    """``f(x)`` for each x of the parent."""

    _KEEPS_LENGTH = True
    _elements_per_output = 1

    def __iter__(self) -> DatasetIterator[T]:
        return MapDatasetIterator(self)


@builds("IterDataset.map_with_index")
class MapWithIndexIterDataset(MapWithIndexBase, IterDataset[T]):
    """``f(n, x)`` for each x of the parent and its position n."""

    _KEEPS_LENGTH = True

    def __iter__(self) -> DatasetIterator[T]:
        return MapWithIndexDatasetIterator(self)


@builds("IterDataset.random_map")
class RandomMapIterDataset(RandomMapBase, IterDataset[T]):
    """``f(x, rng)`` for each x of the parent."""

    _KEEPS_LENGTH = True
    _epoch = 0

    def __iter__(self) -> DatasetIterator[T]:
        return RandomMapDatasetIterator(self)

    def _in_epoch(self, epoch: int) -> Self:
        copied = super()._in_epoch(epoch)
        copied._epoch = epoch
        return copied


class MapDatasetIterator(iterators.MapStep, NodeIterator[T]):
    """Iterates over the results of a function of each element.

    This and the next classes inherit ``__next__`` from a compiled step.
    """

    _FOLLOWS_PARENT = True

    def __init__(self, node: MapBase) -> None:
        NodeIterator.__init__(self, node)
        iterators.MapStep.__init__(self, self._parent, node._call)


class MapWithIndexDatasetIterator(
    iterators.MapWithIndexStep, ElementCountingIterator[T]
):
    """Iterates over the results of a function of a count and each element."""

    _COUNTER_NAME = "counter"

    def __init__(self, node: MapWithIndexBase) -> None:
        NodeIterator.__init__(self, node)
        iterators.MapWithIndexStep.__init__(self, self._parent, node._call)


class RandomMapDatasetIterator(iterators.RandomMapStep, ElementCountingIterator[T]):
    """Iterates over the results of a function of each element and a generator.

    Generators are numbered across all processes that share the data, so that each
    element gets the same draws as in a single process.
    """

    _COUNTER_NAME = "index_for_rng"

    def __init__(self, node: RandomMapIterDataset[T]) -> None:
        NodeIterator.__init__(self, node)
        # The epoch of `at_epoch`, else the one that this thread makes iterators for.
        draws = OpDraws(node._seed, node._epoch or epoch_context.epoch)
        iterators.RandomMapStep.__init__(self, self._parent, node._call, draws)

    def _processes(self) -> tuple[int, int]:
        """Return (index, count) of processes; `RandomMapStep` calls it once."""
        context = self._ctx.mp_context
        return context.process_index, context.process_count


class FilterBase(ParentSpec, CallBase):
    """A filter dataset of either kind."""

    _TRANSFORM_TYPE = transforms.Filter

    @functools.cached_property
    def _transform_name(self) -> str:
        if isinstance(self._transform, transforms.Filter):
            return type(self._transform).__name__
        return transform_name(self._transform)


@builds("MapDataset.filter")
class FilterMapDataset(FilterBase, StepMapDataset[T]):
    """The parent's elements, or None if the predicate is false."""

    _SPARSE = "MapDataset.filter"

    def _call_of_each(self) -> StepCall:
        return steps.FILTER, self._call, self._note_failure, None


@builds("IterDataset.filter")
class FilterIterDataset(FilterBase, IterDataset[T]):
    """The parent's elements for which the predicate is true."""

    def __iter__(self) -> DatasetIterator[T]:
        return FilterDatasetIterator(self)


class FilterDatasetIterator(iterators.FilterStep, NodeIterator[T]):
    """Iterates over the elements for which a predicate is true."""

    _FOLLOWS_PARENT = True

    def __init__(self, node: FilterBase) -> None:
        NodeIterator.__init__(self, node)
        iterators.FilterStep.__init__(self, self._parent, node._call)

    def _check_dropped(self, skipped: int) -> None:
        check_dropped(skipped, str(self), self._ctx.dataset_options)


def check_dropped(skipped: int, name: str, options: DatasetOptions) -> None:
    """Warn or raise if too many of the last `WINDOW` elements were dropped.

    The compiled iterators call it, through `_check_dropped`, after `WINDOW` elements.

    Raises:
        ValueError: The ratio reaches `filter_raise_threshold_ratio`.
    """
    ratio = skipped / iterators.WINDOW
    text = (
        f"Transformation {name} skipped {ratio * 100:.2f} % of the last seen"
        f" {iterators.WINDOW} elements. Please check the filtering logic. If this is"
        " intended, filter the data once and store the result, or set"
        " DatasetOptions.%s to None with WithOptionsIterDataset."
    )
    raise_ratio = options.filter_raise_threshold_ratio
    if raise_ratio and ratio >= raise_ratio:
        raise ValueError(text.replace("%s", "filter_raise_threshold_ratio"))
    warn_ratio = options.filter_warn_threshold_ratio
    now_s = time.monotonic()
    last_s = _last_warning_s.get(name, -WARNING_INTERVAL_S)
    is_due = now_s - last_s >= WARNING_INTERVAL_S
    if warn_ratio and ratio >= warn_ratio and is_due:
        _last_warning_s[name] = now_s
        log.warning("%s", text.replace("%s", "filter_warn_threshold_ratio"))


class _ThreadDraws(threading.local):
    """The draws of each thread that computes elements of a random map.

    Attributes:
        current: The draws of the calling thread, for its last epoch.
    """

    def __init__(self, seed: Any) -> None:
        self._seed = seed
        self.current = OpDraws(seed)

    def set_epoch(self, epoch: int) -> OpDraws:
        """Use the draws of another epoch in the calling thread, and return them."""
        self.current = OpDraws(self._seed, epoch)
        return self.current

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return _ThreadDraws, (self._seed,)


class RngPool:
    """A pool of reusable generators, each set to the draws of one index.

    The generator of an index does not depend on earlier draws. It is
    ``np.random.Generator(np.random.Philox(seed))`` with its counter at
    [0, 0, op_seed, index]. A pool is pickled as its seed. It is thread-safe.

    Args:
        seed: Any seed for ``np.random.Philox``.

    Raises:
        TypeError: NumPy does not accept a seed of this type.
        ValueError: The seed is negative.

    Example:
        >>> pool = RngPool(42)
        >>> rng = pool.acquire_rng(7)
        >>> first = rng.random()
        >>> pool.release_rng(rng)
        >>> pool.acquire_rng(7).random() == first
        True
    """

    def __init__(self, seed: Any) -> None:
        check_seed_of_draws("seed", seed)
        self._seed = seed
        self._free: list[np.random.Generator] = []

    def __reduce__(self) -> tuple[type[RngPool], tuple[Any]]:
        return RngPool, (self._seed,)

    def acquire_rng(
        self, index: SupportsIndex, *, op_seed: SupportsIndex = 0
    ) -> np.random.Generator:
        """Return the generator of an index, for exclusive use by the caller.

        Args:
            index: In [0, 2**64).
            op_seed: In [0, 2**64). Selects other draws for the same index.

        Returns:
            The generator, at the start of its numbers for these arguments.

        Raises:
            OverflowError: An argument is out of range.
        """
        try:
            # `list.pop` is atomic: no other thread gets the same generator.
            rng = self._free.pop()
        except IndexError:
            rng = np.random.Generator(np.random.Philox(self._seed))
        restart(rng, index, op_seed)
        return rng

    def __repr__(self) -> str:
        return call_text(self, seed=self._seed)

    def release_rng(self, rng: np.random.Generator) -> None:
        """Return a generator to the pool. The caller must not use it afterwards.

        Args:
            rng: A generator returned by ``acquire_rng`` of this pool.
        """
        self._free.append(rng)
