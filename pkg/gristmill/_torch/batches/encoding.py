"""Batches of tensors as elements that cross a slot of shared memory, and back.

A worker turns its batch into an element that `gristmill._hot.slot_writer` writes
without pickling its arrays; the parent turns what it reads into a batch again:

    element = encoded(batch)      # in the worker
    batch = decoded(element)     # in the parent

What arrives is what torch's own queue would give: the same types, dtypes, shapes and
strides.  Large tensors view the slot, small ones their own memory; all are writable
and none ``is_shared()``.

A plain batch, dicts, lists and tuples of ordinary tensors, becomes ``(tree,)`` with
an array for each tensor.  Any other batch is pickled, as torch would do it but with
the memory of its tensors and arrays beside the pickle, and becomes ``(buffers,
places)``.  A batch in which tensors share memory, or are the same, is not plain,
because its parts must share that again when they arrive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gristmill._hot.leaf_replacement import NotPlain, replace_leaves
from gristmill._torch.batches import pickling

Array = npt.NDArray[Any]


def encoded(batch: Any) -> Any:
    """The element that stands for a batch on its way.

    Its arrays view the tensors' memory: write it to a slot before that changes.

    Raises:
        RuntimeError: A tensor requires grad and is not a leaf.
        Exception: Whatever pickling an object of the batch raised.
    """
    spans: list[tuple[int, int]] = []

    def array_of(tensor: torch.Tensor) -> Array:
        array = pickling.array_of(tensor)
        if array is None:
            raise NotPlain
        spans.append((tensor.data_ptr(), array.nbytes or 1))
        return array

    try:
        tree = replace_leaves(batch, torch.Tensor, array_of)
        if not _overlap(spans):
            return (tree,)
    except NotPlain:
        pass
    pickled, blobs, places = pickling.dumps(batch)
    return [*blobs, np.frombuffer(pickled, np.uint8)], places


def decoded(element: Any) -> Any:
    """The batch that an element stands for; its tensors view the element's arrays."""
    if len(element) == 1:
        return replace_leaves(element[0], np.ndarray, torch.from_numpy)
    (*blobs, pickled), places = element
    return pickling.loads(pickled, blobs, places)


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
