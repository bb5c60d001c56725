"""Datasets that go through their parent several times, and that keep it in memory."""

from __future__ import annotations

from typing import Any

from gristmill._base.checks import whole_number
from gristmill._base.types import T
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    CountingIterator,
    DatasetIterator,
    NodeIterator,
)
from gristmill._dataset.model.node import ParentSpec
from gristmill._dataset.model.states import replay


class RepeatIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements several times, each time the same.

    Workers of the parent stay alive from one epoch to the next.  For other shuffles in
    each epoch use `MapDataset.repeat`.

    Args:
        parent: The dataset.
        num_epochs: How many times; None for no end.

    Raises:
        ValueError: The number is not positive; or, while iterating without an end,
            the parent has no elements.

    Example:
        >>> ds = gristmill.MapDataset.range(2).to_iter_dataset()
        >>> list(gristmill.experimental.RepeatIterDataset(ds, num_epochs=2))
        [0, 1, 0, 1]
    """

    _KIND = "order"
    _SAID = ("num_epochs",)

    def __init__(self, parent: IterDataset[T], num_epochs: int | None = None) -> None:
        super().__init__(parent)
        if num_epochs is not None:
            num_epochs = whole_number("num_epochs", num_epochs)
        if num_epochs is not None and num_epochs <= 0:
            raise ValueError(f"num_epochs must be positive, but got {num_epochs}.")
        self._num_epochs = num_epochs

    def __iter__(self) -> DatasetIterator[T]:
        return RepeatDatasetIterator(self)


class RepeatDatasetIterator(CountingIterator[T]):
    """Iterates over the parent, and sets it back to its start where it ends."""

    _TAKES_IN_STEP = True
    _COUNTER_NAME = "epoch"

    def __init__(self, node: RepeatIterDataset[T]) -> None:
        super().__init__(node)
        self._num_epochs = node._num_epochs
        self._start = self._parent.get_state()
        # Whether the parent is at its start, as far as is known.
        self._at_start = True
        _keep_after_end(self._parent)

    def __next__(self) -> T:
        while self.counter != self._num_epochs:
            try:
                element: T = next(self._parents[0])
            except StopIteration:
                self._begin_next_epoch()
            else:
                self._at_start = False
                return element
        raise StopIteration

    def _check_state(self, state: Any) -> None:
        super()._check_state(state)
        epoch, epochs = state["epoch"], self._num_epochs
        if epochs is not None and epoch > epochs:
            raise states.mismatch(self, f"is of epoch {epoch}, but there are {epochs}")

    def _go_to(self, state: Any) -> None:
        super()._go_to(state)
        self._at_start = False

    def __str__(self) -> str:
        return f"_{super().__str__()}"

    def _begin_next_epoch(self) -> None:
        if self._at_start and self._num_epochs is None:
            raise ValueError(
                f"{self} has no end, but the dataset that it repeats has no elements:"
                f" {self._parent} ended at once. Check what filters it, or pass"
                " num_epochs."
            ) from None
        self.counter += 1
        if self.counter != self._num_epochs:
            states.go_to(self._parent, self._start)
            self._at_start = True


def _keep_after_end(iterator: Any) -> None:
    """Ask those that can to keep at their end what a next epoch needs, too."""
    nodes = [iterator]
    for node in nodes:
        keep = getattr(node, "keep_after_end", None)
        if keep is not None:
            nodes.extend(keep())
        nodes.extend(node._parents)


class CacheIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements, kept in memory by each iterator.

    Put it under a `RepeatIterDataset`: epochs after the first come from memory.  Where
    a restored iterator needs elements that an earlier one kept, it reads them again.

    Args:
        parent: The dataset.

    Example:
        >>> ds = gristmill.MapDataset.range(2).to_iter_dataset()
        >>> ds = ds.pipe(gristmill.experimental.CacheIterDataset)
        >>> list(ds.pipe(gristmill.experimental.RepeatIterDataset, 2))
        [0, 1, 0, 1]
    """

    _SAID = ("parent",)

    def __init__(self, parent: IterDataset[T]) -> None:
        super().__init__(parent)

    def __iter__(self) -> DatasetIterator[T]:
        return CacheDatasetIterator(self)


class CacheDatasetIterator(NodeIterator[T]):
    """Iterates over the parent's elements and keeps them.

    The position in the cache counts; the parent's own is that of the last element
    that was read from it.
    """

    _STATE = states.fields(
        parent=states.parent,
        position=states.count,
        cache_filled=states.flag,
    )

    def __init__(self, node: CacheIterDataset[T]) -> None:
        super().__init__(node)
        self._start = self._parent.get_state()
        self._cache: list[T] = []
        self._position = 0
        self._filled = False
        # Whether elements before the position are missing from the cache.
        self._incomplete = False
        # The parent's position in a state of a full cache: nothing depends on it.
        self._idle: Any = None

    def __next__(self) -> T:
        if self._filled:
            if self._position >= len(self._cache):
                raise StopIteration
            element = self._cache[self._position]
            self._position += 1
            return element
        if self._incomplete:
            states.go_to(self._parent, self._start)
            self._cache = replay(self._parent, self._position)
            self._incomplete = False
        try:
            element = self._read()
        except StopIteration:
            self._filled = True
            raise
        if len(self._cache) == self._position:
            self._cache.append(element)
        self._position += 1
        return element

    def _read(self) -> T:
        """The parent's next element."""
        if self._idle is None:
            element: T = next(self._parent)
            return element
        # It was read before, by the iterator that made the state.
        for element in replay(self._parent, 1):
            return element
        raise StopIteration

    def get_state(self) -> Any:
        """The position, and whether all elements were read."""
        idle = self._idle is not None
        return {
            "parent": self._idle if idle else self._parent.get_state(),
            "position": self._position,
            "cache_filled": self._filled or idle,
        }

    def _go_to(self, state: Any) -> None:
        """Continue at a position; what is in the cache is not read again."""
        self._parent.set_state(state["parent"])
        self._position = state["position"]
        self._idle = state["parent"] if state["cache_filled"] else None
        if not self._filled:
            # What was read is only known to be behind the parent's position where the
            # cache was not full.
            self._incomplete |= state["cache_filled"]
            self._incomplete |= self._position > len(self._cache)
