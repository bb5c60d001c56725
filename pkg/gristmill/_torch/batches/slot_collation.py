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

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from gristmill._torch import private

# Makes an array of a shape and a dtype; in the slot, or in its own memory.
Alloc = Callable[[Any, Any], Any]
Rules = list[tuple[Any, Callable[..., Any]]]


class _Here(threading.local):
    """Where this thread makes batches, and which storages it has made in slots."""

    alloc: Alloc = np.empty

    def __init__(self) -> None:
        self.made: list[Any] = []


_here = _Here()


@contextlib.contextmanager
def into(alloc: Alloc) -> Iterator[None]:
    """The context in which this thread makes batches by `alloc`."""
    _here.alloc = alloc
    try:
        yield
    finally:
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
    """Bytes, not filled, where batches are to be made."""
    array = _here.alloc((count,), np.uint8)
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
            out = new_bytes(len(batch) * first.nbytes).view(first.dtype)
            return torch.stack(batch, 0, out=out.view(len(batch), *first.shape))
        except Exception:
            pass  # Torch's own function says what is wrong.
    return private.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)


def _numbers(kind: type, code: str, torchs: Any) -> Callable[..., Any]:
    """What stands in the place of torch's function for Python numbers of a type."""

    def collate_numbers(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
        if set(map(type, batch)) == {kind}:
            tensor = new_bytes(len(batch) * 8)
            # Torch's own function says what is wrong with an int beyond 64 bits.
            with contextlib.suppress(struct.error):
                struct.pack_into(f"{len(batch)}{code}", tensor.numpy(), 0, *batch)
                return tensor.view(torch.int64 if code == "q" else torch.float64)
        return torchs(batch, collate_fn_map=collate_fn_map)

    return collate_numbers
