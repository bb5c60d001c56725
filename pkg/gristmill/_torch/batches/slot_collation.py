"""Makes torch's ``default_collate`` write batches to a slot of shared memory.

In a worker, torch stacks tensors into a new file in ``/dev/shm`` for each batch, and so
do other collate functions that ask torch for a new shared storage.  After `install`
they get private memory instead, and inside `into` they get memory of the slot, without
a file, page faults or a copy.  After a batch was written, call `move_kept` before the
slot is sent.

Results, types and errors are the same as torch's, whose own functions are called for
unusual batches.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gristmill._torch import private

# Allocates an array with a shape and a dtype, in the slot or in private memory.
Alloc = Callable[[Any, Any], Any]
Rules = list[tuple[Any, Callable[..., Any]]]

# For fewer numbers, torch's own functions are as fast.
_MANY = 16
_BYTE = np.dtype(np.uint8)
# NumPy does not have torch's other dtypes, such as bfloat16.
_DTYPES = {
    torch.from_numpy(np.empty(0, code)).dtype: np.dtype(code)
    for code in "?bhilBHILefdFD"
}


class _Here(threading.local):
    """This thread's allocator for batches, and the storages that it made in slots."""

    alloc: Alloc = np.empty

    def __init__(self) -> None:
        self.made: list[Any] = []


_here = _Here()


class into:
    """A context in which this thread allocates batches by `alloc`."""

    def __init__(self, alloc: Alloc) -> None:
        self._alloc = alloc

    def __enter__(self) -> None:
        _here.alloc = self._alloc

    def __exit__(self, *_: object) -> None:
        _here.alloc = np.empty


def move_kept() -> None:
    """Move batches that are still referenced out of their slot.

    A dataset may keep a batch that it collated.  Call this before the slot is sent.
    """
    for made in _here.made:
        if not made.expired():
            # Only share_memory_() replaces the memory of a storage for all tensors.
            private.storage_of_weak_ref(made.cdata).share_memory_()
    _here.made.clear()


def rules() -> Rules:
    """Return the rules of ``default_collate`` here, for `install` in workers."""
    return list(private.collation().items())


def install(rules: Rules) -> None:
    """Install the rules of the parent process, and make torch use memory of slots.

    Functions that are not torch's own are not replaced.
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
    """Return `count` uninitialized bytes from this thread's allocator."""
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
    """Replace torch's ``_new_shared``."""
    if torch.device(device).type != "cpu":
        return private.new_shared(cls, size, device=device)
    return new_bytes(size).untyped_storage()


def _collate_tensors(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Replace torch's ``collate_tensor_fn``."""
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
            pass  # Torch's own function raises the error.
    return private.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)


def _numbers(kind: type, code: str, torchs: Any) -> Callable[..., Any]:
    """Return the replacement of torch's function for Python numbers of a type."""

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
