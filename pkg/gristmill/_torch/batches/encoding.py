"""Converts batches of tensors to elements for a slot of shared memory, and back.

A worker converts its batch to an element, which `gristmill._hot.slot_writer` writes
without pickling its arrays.  The parent converts the element back to a batch:

    element = encode(batch, state)        # in the worker
    batch, state = decode(element)        # in the parent

The received batch equals that of torch's own queue: the same types, dtypes, shapes and
strides.  Large tensors view the slot, small ones have memory of their own.  All are
writable, and their ``is_shared()`` is False.

A plain batch, dicts, lists and tuples of ordinary tensors, becomes ``(tree,)`` with
an array for each tensor, or ``(tree, state)``.  Any other batch is pickled as torch
would pickle it, but with the memory of its tensors and arrays out of band, and becomes
``(buffers, places, state)``.  A batch whose tensors share memory, or that contains a
tensor twice, is not plain: the received tensors must share memory as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gristmill._hot.leaf_replacement import NotPlainError, replace_leaves
from gristmill._torch.batches import pickling

Array = npt.NDArray[Any]
# The number of items of a pickled batch's element.
_PICKLED_PARTS = 3


def encode(batch: Any, state: bytes | None = None) -> Any:
    """Convert a batch, and a worker's state if given, to an element.

    The element's arrays view the memory of the tensors.  Write the element to a slot
    before that memory changes.

    Raises:
        RuntimeError: A tensor requires grad and is not a leaf.
        Exception: The error that pickling an object of the batch raised.
    """
    tree = _plain_tree(batch)
    if tree is not None:
        return (tree,) if state is None else (tree, state)
    pickled, blobs, places = pickling.dumps(batch)
    return [*blobs, np.frombuffer(pickled, np.uint8)], places, state


def decode(element: Any) -> tuple[Any, bytes | None]:
    """Convert an element back to a batch and a worker's state.

    The tensors of the batch view the element's arrays.
    """
    batch: Any
    content = element[0]
    if type(content) is np.ndarray:
        batch = torch.from_numpy(content)
    elif len(element) == _PICKLED_PARTS:
        *blobs, pickled = content
        batch = pickling.loads(pickled, blobs, element[1])
    else:
        batch = replace_leaves(content, np.ndarray, torch.from_numpy)
    return batch, state_of(element)


def state_of(element: Any) -> bytes | None:
    """Return the worker's state in an element, or None if it has none."""
    state: bytes | None = element[-1] if len(element) > 1 else None
    return state


def _plain_tree(batch: Any) -> Any:
    """Return a plain batch with arrays in place of its tensors; None for any other."""
    if type(batch) is torch.Tensor:
        return pickling.array_of(batch)
    spans: list[tuple[int, int]] = []

    def array_of(tensor: torch.Tensor) -> Array:
        array = pickling.array_of(tensor)
        if array is None:
            raise NotPlainError
        # At least one byte, so that an empty tensor that occurs twice overlaps itself.
        spans.append((tensor.data_ptr(), array.nbytes or 1))
        return array

    try:
        tree = replace_leaves(batch, torch.Tensor, array_of)
    except NotPlainError:
        return None
    return None if _overlap(spans) else tree


def _overlap(spans: list[tuple[int, int]]) -> bool:
    """Sort spans of memory, (address, bytes); return whether any two overlap."""
    if len(spans) < 2:
        return False
    spans.sort()
    end = 0
    for begin, nbytes in spans:
        if begin < end:
            return True
        end = begin + nbytes
    return False
