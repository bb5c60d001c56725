"""Datasets that replace each element by what a function makes of it."""

from __future__ import annotations

import functools
import threading
from typing import Any, TypeVar

from gristmill import transforms
from gristmill._base.checks import check_seed_of_draws
from gristmill._base.types import AnyMap, AnyMapWithIndex, AnyRandomMap, Int64Array
from gristmill._dataset.model import state_checks
from gristmill._dataset.model.blocks import StepMapDataset
from gristmill._dataset.model.building import builds
from gristmill._dataset.model.checks import check_transform
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    ParentStateIterator,
    get_next_index,
    set_next_index,
)
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.names import transform_name
from gristmill._dataset.model.spec import spec_of_step
from gristmill._hot import steps
from gristmill._hot.draw import OpDraws

T = TypeVar("T")


class Mapping:
    """What map datasets of both kinds have in common."""

    _transform: Any
    _map_fn: Any

    @functools.cached_property
    def _transform_name(self) -> str:
        return transform_name(self._transform)

    @property
    def _element_spec(self) -> Any:
        return spec_of_step(self, self._transform, self._transform_name)

    def __str__(self) -> str:
        return f"{type(self).__name__}(transform={self._transform_name})"


class IndexedMapping(Mapping, StepMapDataset[T]):
    """A map dataset that is indexed."""

    def __init__(self, parent: MapDataset[Any], transform: Any, call: Any) -> None:
        super().__init__(parent)
        self._transform = transform
        self._map_fn = call


@builds("MapDataset.map")
class MapMapDataset(IndexedMapping[T]):
    """``f(parent[i])``."""

    def __init__(self, parent: MapDataset[Any], transform: AnyMap[Any, Any]) -> None:
        super().__init__(parent, transform, _call_of(transform, transforms.Map))

    def _step(self, elements: list[Any], indices: Int64Array) -> list[Any]:
        return steps.map_block(self._map_fn, elements, indices, self._failed)


@builds("MapDataset.map_with_index")
class MapWithIndexMapDataset(IndexedMapping[T]):
    """``f(i, parent[i])``."""

    def __init__(
        self, parent: MapDataset[Any], transform: AnyMapWithIndex[Any, Any]
    ) -> None:
        super().__init__(
            parent, transform, _call_of(transform, transforms.MapWithIndex)
        )

    @functools.cached_property
    def _transform_name(self) -> str:
        return transform_name(self._map_fn)

    def _step(self, elements: list[Any], indices: Int64Array) -> list[Any]:
        return steps.map_with_index_block(self._map_fn, elements, indices, self._failed)


@builds("MapDataset.random_map")
class RandomMapMapDataset(IndexedMapping[T]):
    """``f(parent[i], rng)``, the generator being that of i."""

    def __init__(
        self,
        parent: MapDataset[Any],
        transform: AnyRandomMap[Any, Any],
        seed: int | None = None,
    ) -> None:
        super().__init__(parent, transform, _call_of(transform, transforms.RandomMap))
        self._seed = _given_or_default(self, seed)
        self._draws = _ThreadDraws(self._seed)

    def _step(self, elements: list[Any], indices: Int64Array) -> list[Any]:
        return steps.random_map_block(
            self._map_fn, elements, indices, self._draws.here(), self._failed
        )


class StepIterDataset(Mapping, IterDataset[T]):
    """A map dataset that is iterated over."""

    _ONE_TO_ONE = True

    def __init__(self, parent: IterDataset[Any], transform: Any, call: Any) -> None:
        super().__init__(parent)
        self._transform = transform
        self._map_fn = call


@builds("IterDataset.map")
class MapIterDataset(StepIterDataset[T]):
    """``f(x)`` for each x of the parent."""

    def __init__(self, parent: IterDataset[Any], transform: AnyMap[Any, Any]) -> None:
        super().__init__(parent, transform, _call_of(transform, transforms.Map))

    def __iter__(self) -> DatasetIterator[T]:
        return MapDatasetIterator(
            iter(self._parent), self._map_fn, self._transform_name
        )


@builds("IterDataset.map_with_index")
class MapWithIndexIterDataset(StepIterDataset[T]):
    """``f(n, x)`` for each x of the parent, n counting them."""

    def __init__(
        self, parent: IterDataset[Any], transform: AnyMapWithIndex[Any, Any]
    ) -> None:
        super().__init__(
            parent, transform, _call_of(transform, transforms.MapWithIndex)
        )

    def __iter__(self) -> DatasetIterator[T]:
        return MapWithIndexDatasetIterator(
            iter(self._parent), self._map_fn, self._transform_name
        )


@builds("IterDataset.random_map")
class RandomMapIterDataset(StepIterDataset[T]):
    """``f(x, rng)`` for each x of the parent."""

    def __init__(
        self,
        parent: IterDataset[Any],
        transform: AnyRandomMap[Any, Any],
        seed: int | None = None,
    ) -> None:
        super().__init__(parent, transform, _call_of(transform, transforms.RandomMap))
        self._seed = _given_or_default(self, seed)

    def __iter__(self) -> DatasetIterator[T]:
        return RandomMapDatasetIterator(
            iter(self._parent), self._map_fn, self._seed, self._transform_name
        )


class MapDatasetIterator(steps.MapStep, ParentStateIterator[T]):
    """Iterates over what a function makes of each element."""

    _TAKES_IN_STEP = True

    def __init__(self, parent: DatasetIterator[Any], call: Any, name: str) -> None:
        DatasetIterator.__init__(self, parent)
        steps.MapStep.__init__(self, parent, call)
        self._transform_name = name

    __iter__ = DatasetIterator.__iter__

    def __str__(self) -> str:
        return f"MapDatasetIterator(transform={self._transform_name})"

    def _get_next_index(self) -> int:
        return get_next_index(self._parent)

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)


def _check_counted(iterator: CountingIterator[Any], state: Any) -> None:
    """Refuse what is no state of an iterator that counts."""
    name = iterator._COUNTER_NAME
    look = {"parent": state_checks.parent, name: state_checks.count}
    state_checks.fields(**look)(iterator, state)


class CountingIterator(DatasetIterator[T]):
    """A step over an iterator that counts the elements; the count is its state."""

    _TAKES_IN_STEP = True
    counter: int
    _COUNTER_NAME: str
    _transform_name: str

    def get_state(self) -> Any:
        """The parent's position, and the elements counted."""
        return {"parent": self._parent.get_state(), self._COUNTER_NAME: self.counter}

    @state_checks.checked(_check_counted)
    def set_state(self, state: Any) -> None:
        """Continue at a position."""
        self._parent.set_state(state["parent"])
        self.counter = state[self._COUNTER_NAME]

    def __str__(self) -> str:
        return f"{type(self).__name__}(transform={self._transform_name})"

    def _get_next_index(self) -> int:
        return self.counter

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)
        self.counter = index


class MapWithIndexDatasetIterator(steps.MapWithIndexStep, CountingIterator[T]):
    """Iterates over what a function makes of a count and each element."""

    _COUNTER_NAME = "counter"

    def __init__(self, parent: DatasetIterator[Any], call: Any, name: str) -> None:
        DatasetIterator.__init__(self, parent)
        steps.MapWithIndexStep.__init__(self, parent, call)
        self._transform_name = name

    __iter__ = DatasetIterator.__iter__


class RandomMapDatasetIterator(steps.RandomMapStep, CountingIterator[T]):
    """Iterates over what a function makes of each element and a generator.

    Generators are numbered over all processes that share the data, so that each
    element draws what it would draw in one process.
    """

    _COUNTER_NAME = "index_for_rng"

    def __init__(
        self, parent: DatasetIterator[Any], call: Any, seed: Any, name: str
    ) -> None:
        DatasetIterator.__init__(self, parent)
        steps.RandomMapStep.__init__(self, parent, call, OpDraws(seed))
        self._transform_name = name

    __iter__ = DatasetIterator.__iter__

    def _processes(self) -> tuple[int, int]:
        context = self._ctx.mp_context
        return context.process_index, context.process_count


class _ThreadDraws:
    """One generator for each thread that computes elements of a dataset."""

    def __init__(self, seed: Any) -> None:
        self._seed = seed
        self._local = threading.local()

    def here(self) -> OpDraws:
        """The calling thread's own."""
        try:
            draws: OpDraws = self._local.draws
        except AttributeError:
            draws = self._local.draws = OpDraws(self._seed)
        return draws

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return _ThreadDraws, (self._seed,)


# The method of each kind of transform that is called.
_METHODS: dict[type, str] = {
    transforms.Map: "map",
    transforms.MapWithIndex: "map_with_index",
    transforms.RandomMap: "random_map",
}


def _call_of(transform: Any, kind: type) -> Any:
    """What is called: a transform's method, or the function itself."""
    check_transform(transform, kind)
    return (
        getattr(transform, _METHODS[kind]) if isinstance(transform, kind) else transform
    )


def _given_or_default(dataset: Any, seed: int | None) -> Any:
    check_seed_of_draws("seed", seed)
    found = dataset._default_seed if seed is None else seed
    if found is None:
        raise ValueError(
            "`random_map` requires a seed. Please either provide it with"
            " `ds.seed(seed)` before any random transformations or pass it directly"
            " with `ds.random_map(transform, seed=seed)`."
        )
    return found
