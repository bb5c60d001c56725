"""A dataset whose elements are prefetched by a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from gristmill._base.argument_checks import whole_number
from gristmill._base.types import T
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    CheckedIterator,
    DatasetIterator,
    get_next_index,
    set_next_index,
    share_context,
)
from gristmill._dataset.model.node import ParentSpec
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.model.states import check_state, copy_state
from gristmill._dataset.nodes.deferred_steps import can_compute_ahead
from gristmill._dataset.nodes.prefetch_thread import CLOSED_TEXT, PrefetchThread
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator
from gristmill._engine.slow_probe import SlowProbe

# Handing an element from one thread to another takes about this long.
FAST_ELEMENT_S = 20e-6
# The median time of this many elements decides whether a thread is used.
PROBED_ELEMENTS = 9
# The number of untimed elements between two timed ones, when no thread is used.
ELEMENTS_BETWEEN_PROBES = 16


class CheckpointableIterator(Iterator[T], Protocol[T]):
    """An iterator that `ThreadPrefetchDatasetIterator` accepts."""

    def get_state(self) -> Any:
        """Return the position."""

    def set_state(self, state: Any) -> None:
        """Continue at a position."""


class ThreadPrefetchIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements, prefetched by a thread.

    If elements turn out to take less time than passing them between threads (about
    20 us), the consumer's thread computes them.

    Args:
        parent: The dataset.
        prefetch_buffer_size: The most elements that may wait; 0 uses no thread.

    Raises:
        ValueError: The size is negative.

    Example:
        >>> ds = gristmill.MapDataset.range(3).to_iter_dataset()
        >>> ds = gristmill.experimental.ThreadPrefetchIterDataset(
        ...     ds, prefetch_buffer_size=2
        ... )
        >>> list(ds)
        [0, 1, 2]
    """

    _KEEPS_LENGTH = True
    _KIND = "prefetch"
    _REPR_ARGS = ("prefetch_buffer_size",)
    # Whether to use a thread even for fast elements.
    _always_uses_thread = False

    def __init__(self, parent: IterDataset[T], *, prefetch_buffer_size: int) -> None:
        super().__init__(parent)
        self._prefetch_buffer_size = _check_size(prefetch_buffer_size)

    def __iter__(self) -> DatasetIterator[T]:
        parent, size = self._parent, self._prefetch_buffer_size
        iterator = ThreadPrefetchDatasetIterator(iter(parent), size)
        iterator._make_parent = parent.__iter__
        iterator._always_uses_thread = self._always_uses_thread
        return iterator


def open_prefetching(dataset: Any, open_iterator: Callable[[Any], Any]) -> Any:
    """Return `open_iterator(dataset)`, prefetched by a thread if the chain allows it.

    Args:
        dataset: The chain.
        open_iterator: Returns a new iterator over a chain.
    """
    iterator = open_iterator(dataset)
    if not can_compute_ahead(dataset):
        return iterator
    prefetching = ThreadPrefetchDatasetIterator[Any](iterator, 1)
    prefetching._make_parent = lambda: open_iterator(dataset)
    return prefetching


class ThreadPrefetchDatasetIterator(CheckedIterator[T]):
    """Iterates over elements that a thread prefetches.

    The state is the parent's state after the last element that was returned.  An
    exception is raised in place of its element, and the next call continues after it.

    Args:
        parent: Anything with ``__next__``, ``get_state`` and ``set_state``.
        prefetch_buffer_size: The most elements that may wait; 0 uses no thread.

    Raises:
        ValueError: The size is negative.

    Example:
        >>> ds = gristmill.MapDataset.range(3).to_iter_dataset()
        >>> iterator = ThreadPrefetchDatasetIterator(iter(ds), prefetch_buffer_size=2)
        >>> list(iterator)
        [0, 1, 2]
    """

    # Whether to use a thread even for fast elements.
    _always_uses_thread = False
    # Creates another iterator like the parent, or None if that is impossible.
    _make_parent: Callable[[], Any] | None = None

    def __init__(
        self, parent: CheckpointableIterator[T], prefetch_buffer_size: int
    ) -> None:
        # `close` needs the next three attributes, even if the rest raises.
        self._thread: PrefetchThread | None = None
        # A thread that was stopped and may still use the parent.
        self._stopping_thread: PrefetchThread | None = None
        # A thread is used only if elements take longer than passing them between
        # threads.  While `_thread` runs, it adds the times and sets `waits`.
        self._probe = SlowProbe(
            FAST_ELEMENT_S, PROBED_ELEMENTS, ELEMENTS_BETWEEN_PROBES, waits=True
        )
        super().__init__(parent if isinstance(parent, DatasetIterator) else ())
        # Only `_thread` may use it while that runs; see `PrefetchThread`.
        self._source = parent
        # Most chains start with this class. It creates a new dict for each state, so
        # that states need not be copied.
        self._states_are_new = type(parent) is PrefetchDatasetIterator
        self._size = _check_size(prefetch_buffer_size)
        # The parent's state after the last element returned; None if the parent has it.
        self._state: Any = parent.get_state()
        # The index of the next element; None if it must be computed from the state.
        self._index: int | None = 0

    def __next__(self) -> T:
        probe = self._probe
        # Fast elements: only the one after the next `count` is timed.
        if count := probe.until_probe:
            probe.until_probe = count - 1
            return self._compute()
        if self._size and (probe.waits or self._thread is not None):
            return self._take_from_thread()
        if self._closed:
            raise ValueError(CLOSED_TEXT)
        start_s = time.perf_counter()
        element = self._compute()
        probe.add(time.perf_counter() - start_s)
        probe.until_probe = 0 if probe.waits else probe.interval
        return element

    def get_state(self) -> Any:
        """Return the parent's position after the last element that was returned."""
        if self._state is None:
            self._state = self._source.get_state()
        return self._state

    def _check_state(self, state: Any) -> None:
        check_state(self._source, state)

    def _go_to(self, state: Any) -> None:
        self._stop()
        self._index = None
        if self._stopping_thread is None:
            self._source.set_state(state)
            self._state = self._source.get_state()
        else:
            self._state = copy_state(state)

    def start_prefetch(self) -> None:
        """Start the thread, if it does not run yet.

        Raises:
            ValueError: The iterator is closed.
        """
        if self._closed:
            raise ValueError(CLOSED_TEXT)
        if self._thread is not None and self._thread.is_in_fork:
            # Threads do not survive a fork: continue at their position.
            self._thread = None
            self._source.set_state(self._state)
        if self._thread is None and self._size:
            self._wait_for_source()
            self._probe.until_probe = 0
            probe = None if self._always_uses_thread else self._probe
            self._thread = PrefetchThread(self._source, self._size, str(self), probe)

    def close(self) -> None:
        """Close, but do not wait for the thread. See `DatasetIterator.close`."""
        if getattr(self, "_closed", True):
            return
        thread, self._thread = self._thread, None
        if thread is not None and not thread.stop(self._parents):
            for parent in self._parents:
                parent._abandon()
            self._closed = True  # The thread closes the parents, `super` does not.
        self._probe.until_probe = 0  # So that the next `next` finds `_closed`.
        super().close()

    def _abandon(self) -> None:
        if self._thread is not None:
            self._thread.stop()
        super()._abandon()

    def __str__(self) -> str:
        return f"ThreadPrefetchDatasetIterator(prefetch_buffer_size={self._size})"

    def _compute(self) -> T:
        """Compute the next element in this thread."""
        try:
            element = next(self._source)
        except StopIteration:
            raise
        except BaseException:
            self._store_state(copy_state(self._source.get_state()))
            raise
        state = self._source.get_state()
        self._store_state(state if self._states_are_new else copy_state(state))
        return element

    def _take_from_thread(self) -> T:
        """Return the next element from the prefetching thread."""
        self.start_prefetch()
        assert self._thread is not None
        prefetched = self._thread.take()
        if prefetched is None:  # Elements are too fast for a thread.
            self._thread = None
            return next(self)
        element: T
        element, state, error = prefetched
        if error is None:
            self._store_state(state)
            return element
        self._thread = None
        if not isinstance(error, StopIteration):
            # None: the parent's `get_state` raised, too.
            self._store_state(self._state if state is None else state)
        raise error

    def _store_state(self, state: Any) -> None:
        """Count an element, even if it failed, and store the state after it."""
        self._state = state
        if self._index is not None:
            self._index += 1

    def _stop(self) -> None:
        """Stop the thread. If it still uses the parent, replace the parent."""
        thread, self._thread = self._thread, None
        if thread is None or thread.stop(self._parents if self._make_parent else ()):
            return
        self._probe.until_probe = 0
        if self._make_parent is None:
            self._stopping_thread = thread
            return
        for parent in self._parents:
            parent._abandon()
        with suppress_observation():
            parent = self._make_parent()
        share_context(parent, self._ctx)
        self._source, self._parents = parent, (parent,)

    def _wait_for_source(self) -> None:
        """Wait for a stopped thread that uses the parent, then set the parent's state.

        `_stop` and `_go_to` do not wait for it.
        """
        stopping_thread, self._stopping_thread = self._stopping_thread, None
        if stopping_thread is not None:
            stopping_thread.wait()
            self._source.set_state(self._state)

    def _get_next_index(self) -> int:
        if self._index is None:
            state = self.get_state()
            parent = self._stop_and_get_parent("_get_next_index")
            parent.set_state(state)
            self._index = get_next_index(parent)
        return self._index

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._stop_and_get_parent("set_next_index"), index)
        self._index = index
        self._state = None

    def _stop_and_get_parent(self, function: str) -> DatasetIterator[T]:
        """Stop the thread, wait for it, and return the parent."""
        if not isinstance(self._source, DatasetIterator):
            raise ValueError(
                f"`{function}` only supported for native dataset iterators. {self}"
                f" iterates over a {type(self._source).__name__}."
            )
        self._stop()
        self._wait_for_source()
        return self._source


def _check_size(prefetch_buffer_size: Any) -> int:
    size = whole_number("prefetch_buffer_size", prefetch_buffer_size)
    if size < 0:
        raise ValueError(
            f"`prefetch_buffer_size` must be greater than or equal to 0, got {size}."
        )
    return size
