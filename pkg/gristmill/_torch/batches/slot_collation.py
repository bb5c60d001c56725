"""Lets torch's ``default_collate`` make its batches in a slot of shared memory.

In a worker torch stacks tensors into a new file in ``/dev/shm`` for each batch, and
so do the collate functions of others that ask torch for a new shared storage.  After
`install` they get private memory instead, and within `into` memory of the slot, which
costs no file, no page faults and no copy.  When a batch is written, `move_kept` comes
before the slot is given away.

Results, types and errors are torch's: its own functions run wherever a batch is not
a plain one.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gristmill._torch import private

# Makes an array of a shape and a dtype; in the slot, or in its own memory.
Alloc = Callable[[Any, Any], Any]
Rules = list[tuple[Any, Callable[..., Any]]]

# Torch's own functions are as fast for fewer numbers.
_MANY = 16
_BYTE = np.dtype(np.uint8)
# NumPy has no dtype for the others of torch, such as bfloat16.
_DTYPES = {
    torch.from_numpy(np.empty(0, code)).dtype: np.dtype(code)
    for code in "?bhilBHILefdFD"
}


class _Here(threading.local):
    """Where this thread makes batches, and which storages it has made in slots."""

    alloc: Alloc = np.empty

    def __init__(self) -> None:
        self.made: list[Any] = []


_here = _Here()


class into:
    """The context in which this thread makes batches by `alloc`."""

    def __init__(self, alloc: Alloc) -> None:
        self._alloc = alloc

    def __enter__(self) -> None:
        _here.alloc = self._alloc

    def __exit__(self, *_: object) -> None:
        _here.alloc = np.empty


def move_kept() -> None:
    """Move the batches that somebody still holds out of their slot.

    A dataset may keep what it has collated.  Call this before the slot is given away.
    """
    for made in _here.made:
        if not made.expired():
            # Only a move to a shared file changes a storage and not just a tensor.
            private.storage_of_weak_ref(made.cdata).share_memory_()
    _here.made.clear()


def rules() -> Rules:
    """What ``default_collate`` does in this process, for `install` in workers."""
    return list(private.collation().items())


def install(rules: Rules) -> None:
    """Take over the rules of the parent process, and give torch memory of slots.

    Functions that are not torch's own stay what they are.
    """
    ours = {
        private.collate_tensor_fn: _collate_tensors,
        private.collate_int_fn: _numbers(int, "q", private.collate_int_fn),
        private.collate_float_fn: _numbers(float, "d", private.collate_float_fn),
    }
    collation = private.collation()
    collation.clear()
    for kind, function in rules:
        collation[kind] = ours.get(function, function)
    private.set_new_shared(_new_storage)


def new_bytes(count: int) -> torch.Tensor:
    """Return `count` bytes, not filled, where this thread makes batches."""
    return _new_tensor((count,), _BYTE)


def _new_tensor(shape: tuple[int, ...], dtype: np.dtype[Any]) -> torch.Tensor:
    array = _here.alloc(shape, dtype)
    tensor = torch.from_numpy(array)
    if not array.flags.owndata:
        _here.made.append(private.StorageWeakRef(tensor.untyped_storage()))
    return tensor


def _new_storage(
    cls: type[torch.UntypedStorage], size: int, *, device: Any = "cpu"
) -> torch.UntypedStorage:
    """In the place of torch's ``_new_shared``."""
    if torch.device(device).type != "cpu":
        return private.new_shared(cls, size, device=device)
    return new_bytes(size).untyped_storage()


def _collate_tensors(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """In the place of ``collate_tensor_fn``."""
    first = batch[0]
    if type(first) is torch.Tensor and first.is_cpu:
        try:
            dtype = _DTYPES.get(first.dtype)
            if dtype is not None:
                out = _new_tensor((len(batch), *first.shape), dtype)
            else:
                out = new_bytes(len(batch) * first.nbytes).view(first.dtype)
                out = out.view(len(batch), *first.shape)
            return torch.stack(batch, 0, out=out)
        except Exception:
            pass  # Torch's own function says what is wrong.
    return private.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)


def _numbers(kind: type, code: str, torchs: Any) -> Callable[..., Any]:
    """What stands in the place of torch's function for Python numbers of a type."""

    def collate_numbers(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
        if len(batch) >= _MANY and set(map(type, batch)) == {kind}:
            tensor = _new_tensor((len(batch),), np.dtype(code))
            try:
                struct.pack_into(f"{len(batch)}{code}", tensor.numpy(), 0, *batch)
                return tensor
            except struct.error:
                pass  # Torch's own function raises for an int beyond 64 bits.
        return torchs(batch, collate_fn_map=collate_fn_map)

    return collate_numbers
