"""Iterators that place batches on a device before the caller requests them."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from gristmill._base.object_repr import call_text
from gristmill._base.types import T
from gristmill._engine.tracebacks import cut_own_frames
from gristmill._hot.error_location import as_failure
from gristmill.checkpoint import Checkpointable


class DevicePrefetchIterator(Checkpointable, Iterator[T]):
    """Places batches on a device before the caller requests them.

    A subclass defines `_place`, and `_hand_out` if a placed object is not the batch.
    Not thread-safe.

    `get_state` returns the position after the last batch returned, not after the
    batches that wait on the device.  Save the state of this iterator, not of `batches`.
    An exception is raised in its turn, after the batches before it.

    Args:
        batches: Any iterator or iterable, with or without a state.
        depth: Batches on the device at a time, including the one returned last; at
            least 1.

    Raises:
        ValueError: `depth` is less than 1.
    """

    def __init__(self, batches: Iterable[Any], depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}.")
        self._iterator: Any = iter(batches)
        self._depth = depth
        # Batches on the device, the state after each, and the exception instead of it.
        self._queue: deque[tuple[Any, Any, Exception | None]] = deque()
        # The exception that `get_state` raises if the iterator has no state.
        self._state_error: TypeError | None = None
        self._state = self._read_state()

    @abc.abstractmethod
    def _place(self, batch: Any) -> Any:
        """Begin to copy a batch to the device; return an object for `_hand_out`.

        It is called in `next`, up to `depth` - 1 batches before the batch is returned.
        """

    def _hand_out(self, placed: Any) -> Any:
        """Return the batch for the caller."""
        return placed

    def __next__(self) -> T:
        try:
            # Do not read past a failure before it was raised.
            failure = self._queue[-1][2] if self._queue else None
            while len(self._queue) < self._depth and failure is None:
                placed = None
                try:
                    batch_to_place = next(self._iterator)
                except StopIteration:
                    break
                except Exception as error:
                    failure = error
                else:
                    try:
                        placed = self._place(batch_to_place)
                    except Exception as error:
                        failure = as_failure(error, "placing a batch on its device")
                self._queue.append((placed, self._read_state(), failure))
            if not self._queue:
                raise StopIteration
            placed, self._state, failure = self._queue.popleft()
            if failure is not None:
                raise failure
            batch: T = self._hand_out(placed)
            return batch
        except Exception as error:
            cut_own_frames(error)
            raise

    def __repr__(self) -> str:
        return call_text(self, self._iterator, depth=self._depth)

    def get_state(self) -> Any:
        """Return the iterator's state after the last batch returned.

        Raises:
            TypeError: The iterator of `batches` has no state.
        """
        if self._state_error is not None:
            raise self._state_error
        return self._state

    def set_state(self, state: Any) -> None:
        """Continue after `state`; batches on the device are dropped.

        Args:
            state: The result of `get_state`.
        """
        self._queue.clear()
        self._iterator.set_state(state)
        self._state = state

    def start_prefetch(self) -> None:
        """Let the iterator compute in the background, if it can."""
        if hasattr(self._iterator, "start_prefetch"):
            self._iterator.start_prefetch()

    def close(self) -> None:
        """Drop the batches on the device, and close the iterator if it has `close`."""
        if self._state_error is None:
            # So that a later `next` continues after the batch returned last.
            self.set_state(self._state)
        self._queue.clear()
        if hasattr(self._iterator, "close"):
            self._iterator.close()

    def _read_state(self) -> Any:
        if self._state_error is not None:
            return None
        if not hasattr(self._iterator, "get_state"):
            name = type(self._iterator).__name__
            self._state_error = TypeError(f"{name} has no get_state().")
            return None
        try:
            return self._iterator.get_state()
        except TypeError as error:  # It iterates over an iterable without a state.
            self._state_error = error
            return None
