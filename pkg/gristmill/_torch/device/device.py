"""Iterates over batches on an accelerator, copied before the program needs them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Never, overload

import torch

from gristmill._base.types import Array, K, N, T
from gristmill._engine.device_prefetch import DevicePrefetchIterator
from gristmill._torch.batches.tensors import as_tensor_leaf, map_leaves
from gristmill._torch.device.cuda import Cuda, CudaCopies


class _Moves:
    """Moves batches to a device by ``to``, which does nothing for the CPU.

    It has the methods of `CudaCopies`, which `DeviceIterator` calls.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def place(self, batch: Any) -> Any:
        return map_leaves(self._place_leaf, batch)

    def hand_out(self, batch: Any) -> Any:
        return batch

    def wait(self) -> None:
        """Do nothing: ``to`` has finished when it returns."""

    close = wait

    def _place_leaf(self, leaf: Any) -> Any:
        leaf = as_tensor_leaf(leaf)
        return leaf.to(self._device) if hasattr(leaf, "to") else leaf


class DeviceIterator(DevicePrefetchIterator[T]):
    """Iterates over batches on a device; made by `to_device`.

    `get_state` returns the position after the last batch that was returned.  Save this
    iterator's state, not that of the source iterator, which is ahead.

    Args:
        batches: Any iterator or iterable of trees.
        moves: Moves a batch to the device.
        depth: Batches on the device at a time, including the one returned last.

    Raises:
        ValueError: `depth` is less than 1.

    Example:
        >>> ds = gristmill.MapDataset.range(6).batch(2).to_iter_dataset()
        >>> batches = to_device(ds, "cpu")
        >>> next(batches)
        tensor([0, 1])
        >>> batches.get_state()
        {'next_index': 1}
    """

    def __init__(
        self, batches: Iterable[Any], moves: _Moves | CudaCopies, depth: int
    ) -> None:
        super().__init__(batches, depth)
        self._moves = moves
        # If the program never calls close(), this still runs before the waiting
        # batches are freed.
        weakref.finalize(self, moves.close)

    def set_state(self, state: Any) -> None:
        """Continue after `state`; batches on the device are dropped.

        Args:
            state: The result of `get_state`.
        """
        self._moves.wait()
        super().set_state(state)

    def close(self) -> None:
        """Drop the waiting batches, close the source, and unregister its memory."""
        self._moves.wait()
        super().close()
        self._moves.close()

    def _place(self, batch: Any) -> Any:
        return self._moves.place(batch)

    def _hand_out(self, placed: Any) -> Any:
        return self._moves.hand_out(placed)


class StatefulDeviceIterator(DeviceIterator[T]):
    """A `DeviceIterator` over a loader with `state_dict`, such as torchdata's."""

    def __init__(
        self, batches: Iterable[Any], moves: _Moves | CudaCopies, depth: int
    ) -> None:
        super().__init__(_StatefulBatches(batches), moves, depth)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state after the last batch that was returned."""
        state: dict[str, Any] = self._state
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue after the state; batches on the device are dropped."""
        self.set_state(state_dict)


class _StatefulBatches(Iterator[Any]):
    """Adapts a loader with `state_dict` to an iterator with `get_state`."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._iterator: Any = iter(loader)

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._loader)
        return next(self._iterator)

    def __repr__(self) -> str:
        return repr(self._iterator)

    def get_state(self) -> Any:
        return self._loader.state_dict()

    def set_state(self, state: Any) -> None:
        # A loader applies its state to the next iterator.  Make that one only for the
        # next batch, so that it does not start workers before.
        self._loader.load_state_dict(state)
        self._iterator = None


# Any also matches Never, so batches of an unknown type select this overload.
@overload
def to_device(
    iterator: Iterable[Never], device: torch.device | str | int, depth: int = 2
) -> DeviceIterator[Any]: ...


@overload
def to_device(
    iterator: Iterable[torch.Tensor | Array[N]],
    device: torch.device | str | int,
    depth: int = 2,
) -> DeviceIterator[torch.Tensor]: ...


@overload
def to_device(
    iterator: Iterable[dict[K, Never]],
    device: torch.device | str | int,
    depth: int = 2,
) -> DeviceIterator[dict[K, Any]]: ...


@overload
def to_device(
    iterator: Iterable[dict[K, torch.Tensor]] | Iterable[dict[K, Array[N]]],
    device: torch.device | str | int,
    depth: int = 2,
) -> DeviceIterator[dict[K, torch.Tensor]]: ...


@overload
def to_device(  # type: ignore[overload-cannot-match]
    iterator: Iterable[Any], device: torch.device | str | int, depth: int = 2
) -> DeviceIterator[Any]: ...


def to_device(
    iterator: Iterable[Any], device: torch.device | str | int, depth: int = 2
) -> DeviceIterator[Any]:
    """Iterate over batches on a device, copied before the program needs them.

    On CUDA a batch is copied on a separate stream while the device computes.  The
    shared memory of a Gristmill loader's batches is registered as pinned, once and not
    for each batch, so nothing is copied on the host.  Other memory that is not pinned
    is copied to torch's pinned memory first.  The loader reuses the shared memory of a
    batch only after its copy is done.  The tensors behave as if made by
    ``x.to(device)`` on the stream that is current when they are returned.  To use them
    on another stream, call ``record_stream`` as for any tensor.  Registered memory
    counts against the loader's ``memory_limit`` until `DeviceIterator.close`.  Until
    then do not take batches from the source iterator: an asynchronous copy of your own
    could read memory that is being reused.

    On the CPU nothing is copied and no thread runs: arrays become tensors in place,
    and each batch is computed when the program requests it, for any `depth`.  On other
    devices, batches are moved by ``to``.

    Args:
        iterator: A loader of this library or of torch, or any other iterator or
            iterable of trees: mappings, lists, tuples and named tuples.  Leaves to move
            are tensors, NumPy arrays, arrays of other libraries with DLPack, and
            objects with a method ``to``.  Others, such as strings, are unchanged.
        device: A ``torch.device``, or its name or index.
        depth: Batches on the device at a time, including the one returned last; at
            least 1.  Copies and computation overlap if it is 2 or more.

    Returns:
        An iterator whose state is that of the source after the last returned batch:
        ``get_state`` for iterators of this library, and ``state_dict`` if the loader
        has it, such as torchdata's.

    Raises:
        ValueError: `depth` is less than 1.
        RuntimeError: torch does not support the device, or the machine does not have
            it.

    Example:
        >>> import numpy as np
        >>> from gristmill.torch import to_device
        >>> for batch in to_device([{"x": np.arange(3)}], "cpu"):
        ...     print(batch)
        {'x': tensor([0, 1, 2])}
    """
    device = torch.device(device)
    moves: _Moves | CudaCopies = _Moves(device)
    if device.type == "cuda":
        moves = CudaCopies(Cuda(device), depth)
    elif device.type == "cpu":
        depth = min(depth, 1)  # A depth below 1 still raises ValueError.
    if hasattr(iterator, "state_dict") and not hasattr(iterator, "get_state"):
        return StatefulDeviceIterator(iterator, moves, depth)
    return DeviceIterator(iterator, moves, depth)
