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
places)``.  A batch in which a container occurs twice, or in which tensors share memory,
is not plain, because its parts must share that again when they arrive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gristmill._torch.batches import pickling

Array = npt.NDArray[Any]

# Leaves that are the same on the other side, and keys.
ATOMS = frozenset({str, int, float, bool, bytes, complex, type(None)})


class NotPlain(Exception):
    """A batch has a part that an array cannot stand for."""


def encoded(batch: Any) -> Any:
    """The element that stands for a batch on its way.

    Its arrays view the tensors' memory: write it to a slot before that changes.

    Raises:
        RuntimeError: A tensor requires grad and is not a leaf.
        Exception: Whatever pickling an object of the batch raised.
    """
    spans: list[tuple[int, int]] = []
    containers: list[Any] = []
    try:
        tree = _arrays_of(batch, spans, containers)
        if not (_overlap(spans) or _repeat(containers)):
            return (tree,)
    except (NotPlain, RecursionError):
        pass
    pickled, blobs, places = pickling.dumps(batch)
    return [*blobs, np.frombuffer(pickled, np.uint8)], places


def decoded(element: Any) -> Any:
    """The batch that an element stands for; its tensors view the element's arrays."""
    if len(element) == 1:
        return _tensors_of(element[0])
    (*blobs, pickled), places = element
    return pickling.loads(pickled, blobs, places)


def _arrays_of(tree: Any, spans: list[tuple[int, int]], containers: list[Any]) -> Any:
    """Return the tree with arrays for its tensors.

    Appends the address and bytes of each tensor to `spans`, and the containers of the
    tree to `containers` unless they have only atoms.

    Raises:
        NotPlain: An array cannot stand for some part.
    """
    kind = type(tree)
    if kind is torch.Tensor:
        array = pickling.array_of(tree)
        if array is None:
            raise NotPlain
        spans.append((tree.data_ptr(), array.nbytes or 1))
        return array
    if kind in ATOMS:
        return tree
    if kind is dict:
        if not ATOMS.issuperset(map(type, tree)):
            raise NotPlain
        if ATOMS.issuperset(map(type, tree.values())):
            return tree
        containers.append(tree)
        return {
            key: _arrays_of(value, spans, containers) for key, value in tree.items()
        }
    if kind is list or kind is tuple:
        if ATOMS.issuperset(map(type, tree)):
            return tree
        containers.append(tree)
        return kind([_arrays_of(value, spans, containers) for value in tree])
    raise NotPlain


def _tensors_of(tree: Any) -> Any:
    """Return the tree with tensors for its arrays, which it changes in place."""
    kind = type(tree)
    if kind is np.ndarray:
        return torch.from_numpy(tree)
    if kind is dict:
        for key, value in tree.items():
            if type(value) not in ATOMS:
                tree[key] = _tensors_of(value)
    elif kind is list:
        if not ATOMS.issuperset(map(type, tree)):
            tree[:] = [_tensors_of(value) for value in tree]
    elif kind is tuple and not ATOMS.issuperset(map(type, tree)):
        return tuple([_tensors_of(value) for value in tree])
    return tree


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


def _repeat(containers: list[Any]) -> bool:
    """Return whether a container is in a batch twice; the first one has all others."""
    return len(containers) > 2 and len(set(map(id, containers))) < len(containers)
