"""Batches on JAX devices, ahead of need.  Imports jax."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from gristmill.checkpoint import Checkpointable


@dataclasses.dataclass(frozen=True)
class _Placed:
    """A batch on the device, or what was raised instead, and the state after it."""

    batch: Any
    state: Any
    failure: Exception | None = None


class DevicePrefetch(Checkpointable, Iterator[Any]):
    """Puts batches on devices before they are asked for.

    `get_state` is the position after the last batch that was given out, not after
    those that wait on the device: save this iterator, and not the one below.  An
    exception is raised in its turn, after the batches before it.

    Args:
        iterator: Gives trees with array leaves.
        sharding: A `jax.sharding.Sharding` or device for every leaf; None uses the
            default device.
        depth: Batches on the device at a time, the one given out included, at
            least 1.
    """

    def __init__(self, iterator: Iterator[Any], sharding: Any, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}.")
        self._iterator = iterator
        self._sharding = sharding
        self._depth = depth
        self._queue: collections.deque[_Placed] = collections.deque()
        self._has_state = hasattr(iterator, "get_state")
        self._state = self._state_now()

    def __next__(self) -> Any:
        # Nothing is read past a failure until the caller has had it.
        while len(self._queue) < self._depth and not self._fails():
            try:
                placed = jax.tree_util.tree_map(self._place, next(self._iterator))
            except StopIteration:
                break
            except Exception as error:
                self._queue.append(_Placed(None, self._state_now(), error))
                break
            self._queue.append(_Placed(placed, self._state_now()))
        if not self._queue:
            raise StopIteration
        due = self._queue.popleft()
        self._state = due.state
        if due.failure is not None:
            raise due.failure
        return due.batch

    def get_state(self) -> Any:
        """The iterator's state after the last batch that was given out."""
        if not self._has_state:
            raise TypeError(f"{type(self._iterator).__name__} has no get_state().")
        return self._state

    def set_state(self, state: Any) -> None:
        """Continue after `state`; batches on the device are dropped."""
        self._queue.clear()
        self._iterator.set_state(state)  # type: ignore[attr-defined]
        self._state = state

    def start_prefetch(self) -> None:
        """Let the iterator start computing in the background."""
        self._iterator.start_prefetch()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Drop the batches on the device, and close the iterator."""
        if self._has_state:
            self.set_state(self._state)
        self._queue.clear()
        self._iterator.close()  # type: ignore[attr-defined]

    def _fails(self) -> bool:
        return bool(self._queue) and self._queue[-1].failure is not None

    def _state_now(self) -> Any:
        return self._iterator.get_state() if self._has_state else None  # type: ignore[attr-defined]

    def _place(self, leaf: Any) -> Any:
        if self._sharding is not None:
            if isinstance(self._sharding, jax.sharding.Sharding):
                return jax.make_array_from_process_local_data(self._sharding, leaf)
            return jax.device_put(leaf, self._sharding)
        if _shareable(leaf):
            return jax.dlpack.from_dlpack(leaf)
        return jax.device_put(leaf)


def prefetch_to_device(
    iterator: Any, sharding: Any = None, depth: int = 2
) -> DevicePrefetch:
    """Iterate over batches as `jax.Array` leaves, placed before they are asked for.

    On the CPU, with no `sharding`, an array that JAX can represent shares the
    memory of the batch: it is not copied, and the memory stays alive with it.

    Args:
        iterator: A `DataLoaderIterator` or any iterator or iterable of trees.
        sharding: Where leaves go; with a `jax.sharding.Sharding` each process gives
            its own part of the global batch.
        depth: Batches on the device at a time, the one given out included.

    Raises:
        ValueError: `depth` is less than 1.
    """
    return DevicePrefetch(iter(iterator), sharding, depth)


def _shareable(leaf: Any) -> bool:
    """Whether JAX may view this array in place, on its default device."""
    chosen = jax.config.jax_default_device is not None
    if not isinstance(leaf, np.ndarray) or chosen or jax.default_backend() != "cpu":
        return False
    if leaf.dtype.kind not in "biufc" or leaf.size == 0 or not leaf.flags.writeable:
        return False
    same_dtype = jax.dtypes.canonicalize_dtype(leaf.dtype) == leaf.dtype
    return same_dtype and leaf.flags.c_contiguous and leaf.ctypes.data % 64 == 0
