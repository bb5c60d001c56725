"""Makes torch's ``default_collate`` write its batches into a slot of shared memory.

In a worker, torch stacks the tensors of each batch into a new file in ``/dev/shm``.  So
do other collate functions that request a new shared storage from torch.  After
`install` they get private memory instead, and within `allocate_with` memory of the
slot, which costs no file, no page faults and no copy.  After writing a batch, call
`move_live_batches` before releasing the slot.

Results, types and errors are torch's: its own functions collate all batches that are
not plain.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gristmill._torch import private

# Allocates an array of a shape and a dtype, in the slot or in private memory.
Alloc = Callable[[Any, Any], Any]
# The types of samples that ``default_collate`` supports, and their collate functions.
Rules = list[tuple[Any, Callable[..., Any]]]

# For fewer numbers, torch's own functions are as fast.
_MIN_NUMBERS = 16
_BYTE = np.dtype(np.uint8)
# NumPy has no dtype for torch's other dtypes, such as bfloat16.
_DTYPES = {
    torch.from_numpy(np.empty(0, code)).dtype: np.dtype(code)
    for code in "?bhilBHILefdFD"
}


class _SlotContext(threading.local):
    """The calling thread's allocator, and weak references to its storages in slots."""

    alloc: Alloc = np.empty

    def __init__(self) -> None:
        self.storages: list[Any] = []


_context = _SlotContext()


class allocate_with:
    """A context in which the calling thread allocates its batches with `alloc`."""

    def __init__(self, alloc: Alloc) -> None:
        self._alloc = alloc

    def __enter__(self) -> None:
        _context.alloc = self._alloc

    def __exit__(self, *_: object) -> None:
        _context.alloc = np.empty


def move_live_batches() -> None:
    """Move the batches that are still referenced out of their slot.

    A dataset may keep a batch that it has collated.  Call this before releasing the
    slot.
    """
    for storage in _context.storages:
        if not storage.expired():
            # Only a move to a shared file changes the storage itself, and with it
            # every tensor that uses it.
            private.storage_of_weak_ref(storage.cdata).share_memory_()
    _context.storages.clear()


def rules() -> Rules:
    """Return the rules of ``default_collate`` here, for `install` in workers."""
    return list(private.collation().items())


def install(rules: Rules) -> None:
    """Set the parent's collation rules, and make torch allocate in slots.

    Functions that are not torch's own stay unchanged.
    """
    replacements = {
        private.collate_tensor_fn: _collate_tensors,
        private.collate_int_fn: _number_collation(int, "q", private.collate_int_fn),
        private.collate_float_fn: _number_collation(
            float, "d", private.collate_float_fn
        ),
    }
    collation = private.collation()
    collation.clear()
    for kind, function in rules:
        collation[kind] = replacements.get(function, function)
    private.set_new_shared(_new_storage)


def new_bytes(count: int) -> torch.Tensor:
    """Return `count` uninitialized bytes from the calling thread's allocator."""
    return _new_tensor((count,), _BYTE)


def _new_tensor(shape: tuple[int, ...], dtype: np.dtype[Any]) -> torch.Tensor:
    """Return an uninitialized tensor; note its storage if it is in the slot."""
    array = _context.alloc(shape, dtype)
    tensor = torch.from_numpy(array)
    if not array.flags.owndata:  # It lies in the slot.
        _context.storages.append(private.StorageWeakRef(tensor.untyped_storage()))
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


def _number_collation(
    kind: type, typecode: str, torch_function: Any
) -> Callable[..., Any]:
    """Return a replacement of torch's collate function for Python's ints or floats.

    `typecode` is that of NumPy and `struct`.
    """

    def collate_numbers(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
        count = len(batch)
        if count >= _MIN_NUMBERS and set(map(type, batch)) == {kind}:
            tensor = _new_tensor((count,), np.dtype(typecode))
            try:
                struct.pack_into(f"{count}{typecode}", tensor.numpy(), 0, *batch)
                return tensor
            except struct.error:
                pass  # Torch's own function raises for an int beyond 64 bits.
        return torch_function(batch, collate_fn_map=collate_fn_map)

    return collate_numbers
