"""Batches on the accelerator, ahead of need."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Never, overload

import torch

from gristmill._base.types import Array, K, N, T
from gristmill._engine.ahead import Ahead
from gristmill._torch.batches.tensors import as_tensor_leaf, map_leaves
from gristmill._torch.device.cuda import Cuda, CudaCopies


class _Moves:
    """Moves batches to a device by ``to``, which for the CPU's own is nothing."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def place(self, batch: Any) -> Any:
        return map_leaves(self._place_leaf, batch)

    def hand_out(self, batch: Any) -> Any:
        return batch

    def settle(self) -> None:
        """Nothing is under way."""

    close = settle

    def _place_leaf(self, leaf: Any) -> Any:
        leaf = as_tensor_leaf(leaf)
        return leaf.to(self._device) if hasattr(leaf, "to") else leaf


class DeviceIterator(Ahead[T]):
    """Gives the batches of an iterator on a device; made by `to_device`.

    `get_state` is the position after the last batch that was given out: save this
    iterator, and not the one below.

    Args:
        batches: Any iterator or iterable of trees.
        moves: Begins and ends what it takes to have a batch on the device.
        depth: Batches on the device at a time, the one given out included.

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
        # Also where nobody closes this: before the batches that wait are dropped.
        weakref.finalize(self, moves.close)

    def set_state(self, state: Any) -> None:
        """Continue after `state`; batches on the device are dropped."""
        self._moves.settle()
        super().set_state(state)

    def close(self) -> None:
        """Drop the batches that wait, close the iterator, unregister its memory."""
        self._moves.settle()
        super().close()
        self._moves.close()

    def _place(self, batch: Any) -> Any:
        return self._moves.place(batch)

    def _hand_out(self, placed: Any) -> Any:
        return self._moves.hand_out(placed)


class StatefulDeviceIterator(DeviceIterator[T]):
    """A `DeviceIterator` over a loader that has `state_dict`, such as torchdata's."""

    def __init__(
        self, batches: Iterable[Any], moves: _Moves | CudaCopies, depth: int
    ) -> None:
        super().__init__(_StatefulBatches(batches), moves, depth)

    def state_dict(self) -> dict[str, Any]:
        """The loader's state after the last batch that was given out."""
        state: dict[str, Any] = self._state
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue after the state; batches on the device are dropped."""
        self.set_state(state_dict)


class _StatefulBatches(Iterator[Any]):
    """The batches of a loader, whose state is the loader's."""

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
        # The loader takes a state for the iterator that it makes next, which is made
        # when a batch is asked for: until then it has no workers.
        self._loader.load_state_dict(state)
        self._iterator = None


# Any alone is Never, too: what nothing is known of comes here.
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
    """Iterate over batches with their tensors and arrays on a device, ahead of need.

    On CUDA a batch is copied on a stream beside the one that computes.  The shared
    memory in which a Gristmill loader hands batches over is registered as pinned, once
    and not for each batch, so nothing is copied on the host; other memory that is not
    pinned goes through torch's pinned allocator.  The shared memory of a batch is used
    for another only after its copy.  The tensors behave as if made by
    ``x.to(device)`` on the stream that is current when they are given out: to use them
    on another one, call ``record_stream`` as for any tensor.  Registered memory counts
    against the loader's ``memory_limit`` until `DeviceIterator.close`; draw no batches
    from the iterator below meanwhile, since an asynchronous copy of your own would
    read memory that is used again.

    On the CPU nothing is copied and no thread runs: arrays become tensors in place,
    and batches are drawn when they are asked for, whatever `depth` is.  On any other
    device batches are moved by ``to``.

    Args:
        iterator: A loader of this library or of torch, or any other iterator or
            iterable of trees: mappings, lists, tuples and named tuples.  Leaves are
            tensors, arrays of NumPy and, by DLPack, of other libraries, and what
            has a method ``to``; others, such as strings, stay what they are.
        device: A ``torch.device``, or what makes one.
        depth: Batches on the device at a time, the one given out included, at least
            1; from 2 on copies and computation overlap.

    Returns:
        An iterator with the state of the one below, after the last batch given out:
        ``get_state`` for iterators of this library, also ``state_dict`` where the
        loader has that, as torchdata's has.

    Raises:
        ValueError: `depth` is less than 1.
        RuntimeError: torch does not know the device, or has none.

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
        depth = min(depth, 1)
    if hasattr(iterator, "state_dict") and not hasattr(iterator, "get_state"):
        return StatefulDeviceIterator(iterator, moves, depth)
    return DeviceIterator(iterator, moves, depth)
