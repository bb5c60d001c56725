"""Datasets that limit, repeat or cache their parent's elements."""

from __future__ import annotations

import math
from typing import Any

from gristmill._base.argument_checks import whole_number
from gristmill._base.types import T
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    CountingIterator,
    DatasetIterator,
    ElementCountingIterator,
    NodeIterator,
)
from gristmill._dataset.model.known_length import count_of
from gristmill._dataset.model.node import ParentSpec
from gristmill._dataset.model.states import replay
from gristmill._hot import cancellation


class LimitIterDataset(ParentSpec, IterDataset[T]):
    """The first elements of a dataset.

    Args:
        parent: The dataset.
        count: The number of elements, at least 1. If the parent has fewer, all.

    Raises:
        ValueError: The count is not positive.

    Example:
        >>> ds = gristmill.MapDataset.range(5).to_iter_dataset()
        >>> list(gristmill.experimental.LimitIterDataset(ds, count=2))
        [0, 1]
    """

    _KIND = "order"
    _REPR_ARGS = ("count",)

    def __init__(self, parent: IterDataset[T], count: int) -> None:
        count = whole_number("count", count)
        if count <= 0:
            raise ValueError(f"Count must be a positive integer. Got {count}.")
        super().__init__(parent)
        self._count = count

    def __iter__(self) -> DatasetIterator[T]:
        return LimitDatasetIterator(self)

    def _count_elements(self) -> float:
        return min(self._count, count_of(self._parent))


class LimitDatasetIterator(ElementCountingIterator[T]):
    """Iterates over the first elements."""

    _COUNTER_NAME = "count_elements_read"

    def __next__(self) -> T:
        if self.counter >= self._node._count:
            raise StopIteration
        element: T = next(self._parents[0])
        self.counter += 1
        return element


class RepeatIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements several times, in the same order each time.

    Workers of the parent stay alive from one epoch to the next.  To shuffle each epoch
    differently, use `MapDataset.repeat`.

    Args:
        parent: The dataset.
        num_epochs: The number of epochs, or None to repeat forever.

    Raises:
        ValueError: The number is not positive. While iterating forever: the parent has
            no elements.

    Example:
        >>> ds = gristmill.MapDataset.range(2).to_iter_dataset()
        >>> list(gristmill.experimental.RepeatIterDataset(ds, num_epochs=2))
        [0, 1, 0, 1]
    """

    _KIND = "order"
    _REPR_ARGS = ("num_epochs",)

    def __init__(self, parent: IterDataset[T], num_epochs: int | None = None) -> None:
        super().__init__(parent)
        if num_epochs is not None:
            num_epochs = whole_number("num_epochs", num_epochs)
        if num_epochs is not None and num_epochs <= 0:
            raise ValueError(f"num_epochs must be positive, but got {num_epochs}.")
        self._num_epochs = num_epochs

    def __iter__(self) -> DatasetIterator[T]:
        return RepeatDatasetIterator(self)

    def _count_elements(self) -> float:
        count = count_of(self._parent)
        return math.inf if self._num_epochs is None else count * self._num_epochs


class RepeatDatasetIterator(CountingIterator[T]):
    """Iterates over the parent, and resets it to its start when it ends."""

    _FOLLOWS_PARENT = True
    _COUNTER_NAME = "epoch"

    def __init__(self, node: RepeatIterDataset[T]) -> None:
        super().__init__(node)
        self._start_state = self._parent.get_state()
        # True if the parent is known to be at its start.
        self._at_start = True
        # The parent's workers stay alive when it ends.
        self._keep_after_end()

    def __next__(self) -> T:
        while self.counter != self._node._num_epochs:
            try:
                element: T = next(self._parents[0])
            except StopIteration:
                cancellation.check()
                self._begin_next_epoch()
            else:
                self._at_start = False
                return element
        raise StopIteration

    def _check_state(self, state: Any) -> None:
        super()._check_state(state)
        epoch, epochs = state["epoch"], self._node._num_epochs
        if epochs is not None and epoch > epochs:
            raise states.mismatch(self, f"has epoch {epoch}, expected at most {epochs}")

    def _go_to(self, state: Any) -> None:
        super()._go_to(state)
        self._at_start = False

    def __str__(self) -> str:
        return f"_{super().__str__()}"

    def _begin_next_epoch(self) -> None:
        """Count an epoch, and move the parent to its start if another one follows."""
        if self._at_start and self._node._num_epochs is None:
            raise ValueError(
                f"{self} cannot repeat a dataset without elements forever:"
                f" {self._parent} ended at once. Check its filters, or pass num_epochs."
            ) from None
        self.counter += 1
        if self.counter != self._node._num_epochs:
            states.go_to(self._parent, self._start_state)
            self._at_start = True


class CacheIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements, kept in memory by each iterator.

    Use it as the parent of a `RepeatIterDataset`: epochs after the first are then read
    from memory.  If a restored iterator needs elements that an earlier iterator kept,
    it reads them again.

    Args:
        parent: The dataset.

    Example:
        >>> ds = gristmill.MapDataset.range(2).to_iter_dataset()
        >>> ds = ds.pipe(gristmill.experimental.CacheIterDataset)
        >>> list(ds.pipe(gristmill.experimental.RepeatIterDataset, 2))
        [0, 1, 0, 1]
    """

    _KEEPS_LENGTH = True

    _REPR_ARGS = ("parent",)

    def __init__(self, parent: IterDataset[T]) -> None:
        super().__init__(parent)

    def __iter__(self) -> DatasetIterator[T]:
        return CacheDatasetIterator(self)


class CacheDatasetIterator(NodeIterator[T]):
    """Iterates over the parent's elements and keeps them.

    The position in the cache determines the next element.  The parent's position is
    after the last element that was read from it.
    """

    _STATE = states.fields(
        parent=states.parent, position=states.count, cache_filled=states.flag
    )

    def __init__(self, node: CacheIterDataset[T]) -> None:
        super().__init__(node)
        self._start_state = self._parent.get_state()
        self._cache: list[T] = []
        self._position = 0
        self._is_full = False
        # Whether elements before the position are missing from the cache.
        self._lacks_elements = False
        # The parent's state in a restored state of a full cache, else None.  It does
        # not affect the elements.
        self._idle_parent_state: Any = None

    def __next__(self) -> T:
        if self._is_full:
            if self._position >= len(self._cache):
                raise StopIteration
            element = self._cache[self._position]
            self._position += 1
            return element
        if self._lacks_elements:
            states.go_to(self._parent, self._start_state)
            self._cache = replay(self._parent, self._position)
            self._lacks_elements = False
        # If the state had a full cache, the iterator that saved it has already read
        # this element. `replay` skips elements that failed then.
        was_full = self._idle_parent_state is not None
        source = iter(replay(self._parent, 1)) if was_full else self._parent
        try:
            element = next(source)
        except StopIteration:
            self._is_full = True
            raise
        if len(self._cache) == self._position:
            self._cache.append(element)
        self._position += 1
        return element

    def get_state(self) -> Any:
        """Return the position, and whether all elements were read."""
        was_full = self._idle_parent_state is not None
        return {
            "parent": self._idle_parent_state if was_full else self._parent.get_state(),
            "position": self._position,
            "cache_filled": self._is_full or was_full,
        }

    def _go_to(self, state: Any) -> None:
        # Cached elements are not read again.
        self._parent.set_state(state["parent"])
        self._position = state["position"]
        self._idle_parent_state = state["parent"] if state["cache_filled"] else None
        if not self._is_full:
            # The parent's position shows which elements were read only if the saved
            # cache was not full.
            missing = self._position > len(self._cache)
            self._lacks_elements |= state["cache_filled"] or missing
