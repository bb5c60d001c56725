"""Encodes batches of tensors as elements for a slot of shared memory, and decodes them.

A worker encodes its batch as an element that `gristmill._hot.slot_writer` writes
without pickling its arrays.  The parent decodes the element:

    element = encoded(batch, state)        # in the worker
    batch, state = decoded(element)        # in the parent

The result is the same as from torch's own queue, with the same types, dtypes, shapes
and strides.  Large tensors view the slot, and small ones have their own memory.  All
are writable, and ``is_shared()`` returns False.

A plain batch of dicts, lists, tuples and ordinary tensors becomes ``(tree,)`` or
``(tree, state)``, with an array for each tensor.  Any other batch is pickled like torch
would, but with the memory of its tensors and arrays out of band, and becomes
``(buffers, places, state)``.  If tensors of a batch share memory, or are the same
tensor, the batch is not plain, because they must share memory again after decoding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gristmill._hot.leaf_replacement import NotPlain, replace_leaves
from gristmill._torch.batches import pickling

Array = npt.NDArray[Any]
# Items of the element of a pickled batch.
_PICKLED_PARTS = 3


def encoded(batch: Any, state: bytes | None = None) -> Any:
    """Encode a batch and a worker's state as an element.

    Its arrays view the tensors' memory: write it to a slot before that changes.

    Raises:
        RuntimeError: A tensor requires grad and is not a leaf.
        Exception: Pickling an object of the batch failed.
    """
    tree = _plain_tree(batch)
    if tree is not None:
        return (tree,) if state is None else (tree, state)
    pickled, blobs, places = pickling.dumps(batch)
    return [*blobs, np.frombuffer(pickled, np.uint8)], places, state


def decoded(element: Any) -> tuple[Any, bytes | None]:
    """Decode an element; return the batch and the state.

    The tensors of the batch view the element's arrays.
    """
    batch: Any
    tree = element[0]
    if type(tree) is np.ndarray:
        batch = torch.from_numpy(tree)
    elif len(element) == _PICKLED_PARTS:
        *blobs, pickled = tree
        batch = pickling.loads(pickled, blobs, element[1])
    else:
        batch = replace_leaves(tree, np.ndarray, torch.from_numpy)
    return batch, state_of(element)


def state_of(element: Any) -> bytes | None:
    """Return the state in an element, if any."""
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
            raise NotPlain
        spans.append((tensor.data_ptr(), array.nbytes or 1))
        return array

    try:
        tree = replace_leaves(batch, torch.Tensor, array_of)
    except NotPlain:
        return None
    return None if _overlap(spans) else tree


def _overlap(spans: list[tuple[int, int]]) -> bool:
    """Return whether two tensors have memory in common."""
    if len(spans) < 2:
        return False
    spans.sort()
    end = 0
    for begin, nbytes in spans:
        if begin < end:
            return True
        end = begin + nbytes
    return False
