"""Datasets that replace each element by what a function makes of it."""

from __future__ import annotations

import functools
import threading
from typing import Any, ClassVar, TypeVar

from gristmill import transforms
from gristmill._base.checks import check_seed_of_draws
from gristmill._base.types import Int64Array
from gristmill._dataset.model.blocks import StepMapDataset
from gristmill._dataset.model.building import builds
from gristmill._dataset.model.checks import call_of
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    ElementCountingIterator,
    NodeIterator,
)
from gristmill._dataset.model.names import transform_name
from gristmill._dataset.model.node import Dataset
from gristmill._dataset.model.spec import spec_of_step
from gristmill._hot import steps
from gristmill._hot.draw import OpDraws

T = TypeVar("T")


class Calling(Dataset):
    """A dataset of either kind that calls a function or a transform's method.

    Args:
        parent: Has the elements.
        transform: The function, or the transform.
    """

    # The kind of transform that it takes.
    _TAKES: ClassVar[type] = transforms.Map

    def __init__(self, parent: Any, transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform
        self._call = call_of(transform, self._TAKES)

    @functools.cached_property
    def _transform_name(self) -> str:
        return transform_name(self._transform)

    def _arguments_text(self) -> str:
        return f"(transform={self._transform_name})"


class Mapping(Calling):
    """A map dataset of either kind."""

    @property
    def _element_spec(self) -> Any:
        return spec_of_step(self, self._transform, self._transform_name)


class IndexMapping(Mapping):
    """A map dataset whose function takes the index, too."""

    _TAKES = transforms.MapWithIndex

    @functools.cached_property
    def _transform_name(self) -> str:
        return transform_name(self._call)


class RandomMapping(Mapping):
    """A map dataset whose function takes a random generator, too.

    Args:
        parent: Has the elements.
        transform: The function, or the transform.
        seed: By default made of the nearest seed above.

    Raises:
        ValueError: There is no seed.
    """

    _TAKES = transforms.RandomMap

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
class MapMapDataset(Mapping, StepMapDataset[T]):
    """``f(parent[i])``."""

    def _step(self, elements: list[Any], indices: Int64Array) -> list[Any]:
        return steps.apply(steps.MAP, self._call, elements, indices, self._failed)


@builds("MapDataset.map_with_index")
class MapWithIndexMapDataset(IndexMapping, StepMapDataset[T]):
    """``f(i, parent[i])``."""

    def _step(self, elements: list[Any], indices: Int64Array) -> list[Any]:
        kind = steps.MAP_WITH_INDEX
        return steps.apply(kind, self._call, elements, indices, self._failed)


@builds("MapDataset.random_map")
class RandomMapMapDataset(RandomMapping, StepMapDataset[T]):
    """``f(parent[i], rng)``, the generator being that of i."""

    @functools.cached_property
    def _draws(self) -> _ThreadDraws:
        return _ThreadDraws(self._seed)

    def _step(self, elements: list[Any], indices: Int64Array) -> list[Any]:
        draws = self._draws.here()
        return steps.apply(
            steps.RANDOM_MAP, self._call, elements, indices, self._failed, draws
        )


@builds("IterDataset.map")
class MapIterDataset(Mapping, IterDataset[T]):
    """``f(x)`` for each x of the parent."""

    _stride = 1

    def __iter__(self) -> DatasetIterator[T]:
        return MapDatasetIterator(self)


@builds("IterDataset.map_with_index")
class MapWithIndexIterDataset(IndexMapping, IterDataset[T]):
    """``f(n, x)`` for each x of the parent, n counting them."""

    def __iter__(self) -> DatasetIterator[T]:
        return MapWithIndexDatasetIterator(self)


@builds("IterDataset.random_map")
class RandomMapIterDataset(RandomMapping, IterDataset[T]):
    """``f(x, rng)`` for each x of the parent."""

    def __iter__(self) -> DatasetIterator[T]:
        return RandomMapDatasetIterator(self)


class MapDatasetIterator(steps.MapStep, NodeIterator[T]):
    """Iterates over what a function makes of each element."""

    _TAKES_IN_STEP = True

    def __init__(self, node: Mapping) -> None:
        NodeIterator.__init__(self, node)
        steps.MapStep.__init__(self, self._parent, node._call)


class MapWithIndexDatasetIterator(steps.MapWithIndexStep, ElementCountingIterator[T]):
    """Iterates over what a function makes of a count and each element."""

    _COUNTER_NAME = "counter"

    def __init__(self, node: IndexMapping) -> None:
        NodeIterator.__init__(self, node)
        steps.MapWithIndexStep.__init__(self, self._parent, node._call)


class RandomMapDatasetIterator(steps.RandomMapStep, ElementCountingIterator[T]):
    """Iterates over what a function makes of each element and a generator.

    Generators are numbered over all processes that share the data, so that each
    element draws what it would draw in one process.
    """

    _COUNTER_NAME = "index_for_rng"

    def __init__(self, node: RandomMapping) -> None:
        NodeIterator.__init__(self, node)
        draws = OpDraws(node._seed)
        steps.RandomMapStep.__init__(self, self._parent, node._call, draws)

    def _processes(self) -> tuple[int, int]:
        context = self._ctx.mp_context
        return context.process_index, context.process_count


class _ThreadDraws(threading.local):
    """One generator for each thread that computes elements of a dataset."""

    def __init__(self, seed: Any) -> None:
        self._seed = seed
        self._draws = OpDraws(seed)

    def here(self) -> OpDraws:
        """The calling thread's own."""
        return self._draws

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return _ThreadDraws, (self._seed,)
