"""Datasets that shuffle within windows of consecutive elements."""

from __future__ import annotations

import itertools
from typing import Any, Self

import numpy as np

from gristmill import _core
from gristmill._base.argument_checks import check_integer
from gristmill._base.types import Indices, T
from gristmill._dataset.model import states
from gristmill._dataset.model.blocks import (
    as_indices,
    epochs_and_offsets,
)
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import ParentSpec, seed_in_epoch
from gristmill._dataset.model.states import copy_state, replay
from gristmill._dataset.nodes.order import OrderMapDataset
from gristmill._hot import iterators


class WindowShuffleBase(ParentSpec):
    """A dataset of either kind that shuffles windows of its parent's elements."""

    _KIND = "order"
    _random = "order"

    def __init__(self, parent: Any, *, window_size: int, seed: int) -> None:
        super().__init__(parent)
        check_integer("window_size", window_size)
        check_integer("seed", seed)
        if window_size <= 0:
            raise ValueError(f"window_size must be positive. Got {window_size}.")
        self._window_size = window_size
        self._seed = seed


class WindowShuffleMapDataset(WindowShuffleBase, OrderMapDataset[T]):
    """The parent's elements, each window of an epoch in a random order.

    Window w of all epochs is shuffled with seed ``seed + w``; the last window of an
    epoch ends with it.

    Args:
        parent: The dataset.
        window_size: Elements of a window, at least 1.
        seed: The seed of the first window.

    Raises:
        ValueError: The size is not positive.
        TypeError: The seed of a window is not in [0, 2**32); when it is used.

    Example:
        >>> ds = gristmill.experimental.WindowShuffleMapDataset(
        ...     gristmill.MapDataset.range(8), window_size=4, seed=1
        ... )
        >>> list(ds)
        [1, 2, 3, 0, 4, 7, 5, 6]
    """

    def __init__(self, parent: MapDataset[T], *, window_size: int, seed: int) -> None:
        super().__init__(parent, window_size=window_size, seed=seed)

    def __len__(self) -> int:
        return len(self._parent)

    def _to_ancestor_indices(self, indices: Indices) -> Indices:
        size, seed, length = self._window_size, self._seed, len(self._parent)
        if not indices.dtype.hasobject:
            try:
                return _core.window_shuffle(indices, size, seed, length)
            except OverflowError:
                indices = indices.astype(np.object_)
        windows = -(-length // size)
        epochs, offsets = epochs_and_offsets(indices, length)
        shuffled = []
        for epoch, offset in zip(epochs.tolist(), offsets.tolist(), strict=True):
            epoch_seed = seed + epoch * windows
            (parent_offset,) = _core.window_shuffle(
                np.array([offset], np.int64), size, epoch_seed, length
            ).tolist()
            shuffled.append(parent_offset + epoch * length)
        return as_indices(shuffled)


class WindowShuffleIterDataset(WindowShuffleBase, IterDataset[T]):
    """The parent's elements, each window of them in a random order.

    The whole window is read before its first element is returned.  Window w is shuffled
    with seed ``seed + w``.

    Args:
        parent: The dataset.
        window_size: Elements of a window, at least 1.
        seed: The seed of the first window.

    Raises:
        ValueError: The size is not positive.
        TypeError: The seed of a window is not in [0, 2**32); when it is used.

    Example:
        >>> ds = gristmill.experimental.WindowShuffleIterDataset(
        ...     gristmill.MapDataset.range(8).to_iter_dataset(), window_size=4, seed=1
        ... )
        >>> list(ds)
        [0, 3, 2, 1, 6, 5, 7, 4]
    """

    _KEEPS_LENGTH = True

    def __init__(self, parent: IterDataset[T], *, window_size: int, seed: int) -> None:
        super().__init__(parent, window_size=window_size, seed=seed)

    def __iter__(self) -> DatasetIterator[T]:
        return WindowShuffleDatasetIterator(self)

    def _in_epoch(self, epoch: int) -> Self:
        copied = super()._in_epoch(epoch)
        copied._seed = seed_in_epoch(self._seed, epoch)
        return copied


class WindowShuffleDatasetIterator(iterators.BlockFeeder, NodeIterator[T]):
    """Iterates over shuffled windows.

    The compiled `BlockFeeder` defines ``__next__``, which calls `_refill` when all
    elements of a window have been returned.

    The state is the position before the current window and the number of its elements
    that were returned.  Restoring reads the window again.
    """

    _STATE = states.fields(
        parent_window_start_state=states.parent,
        window_index=states.count,
        pos_in_window=states.count,
    )

    def __init__(self, node: WindowShuffleBase) -> None:
        NodeIterator.__init__(self, node)
        iterators.BlockFeeder.__init__(self, keep_absent=True)
        # The parent's state before the current window, its number and its length.
        self._state_before_window = self._parent.get_state()
        self._window_number = 0
        self._window_length = 0
        # The elements of an incomplete window after reading it failed.
        self._partial_window: list[T] = []
        # The remaining elements of a restored window.
        self._restored_window: list[T] = []
        self._parent_ended = False

    def get_state(self) -> Any:
        """Return the parent's state before the window, its number, the place in it."""
        remaining = self.count_buffered() + len(self._restored_window)
        return {
            "parent_window_start_state": copy_state(self._state_before_window),
            "window_index": self._window_number
            + (self._window_length > 0 and remaining == 0),
            "pos_in_window": self._window_length - remaining,
        }

    def _check_state(self, state: Any) -> None:
        super()._check_state(state)
        position, size = state["pos_in_window"], self._node._window_size
        if position > size:
            raise states.mismatch(
                self, f"has pos_in_window {position}, expected at most {size}"
            )

    def _go_to(self, state: Any) -> None:
        self._state_before_window = copy_state(state["parent_window_start_state"])
        self._parent.set_state(copy_state(self._state_before_window))
        self._window_number = state["window_index"]
        self._window_length = 0
        self._partial_window, self._restored_window = [], []
        self._parent_ended = False
        self.seek(0)  # Drops the elements of the current window.
        position_in_window = state["pos_in_window"]
        if position_in_window:
            window = replay(self._parent, self._node._window_size)
            self._restored_window = self._shuffle(window)[position_in_window:]
            # If no elements are left, the state has the next window's number.
            self._window_number -= not self._restored_window

    def _refill(self, first: int) -> list[Any]:
        """Return the next window, in output order."""
        if self._restored_window:
            window, self._restored_window = self._restored_window, []
            return window
        if self._parent_ended:
            return []
        # All elements of the current window, if there is one, have been returned.
        self._window_number += self._window_length > 0
        self._window_length = 0
        if not self._partial_window:
            self._state_before_window = self._parent.get_state()
        missing = self._node._window_size - len(self._partial_window)
        # `extend` keeps the elements that were read if reading fails.
        self._partial_window.extend(itertools.islice(self._parent, missing))
        window, self._partial_window = self._partial_window, []
        return self._shuffle(window)

    def _shuffle(self, window: list[T]) -> list[T]:
        """Shuffle the current window, in reverse order of the permutation."""
        self._window_length = len(window)
        self._parent_ended = self._window_length < self._node._window_size
        if not window:
            return []  # Do not check the seed.
        order = _core.permutation(len(window), self._node._seed + self._window_number)
        return [window[place] for place in order[::-1].tolist()]
