"""Walks the batches of PyTorch programs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch

from gristmill._torch.batches.tensors import as_tensor_tree


def map_leaves(function: Callable[[Any], Any], element: Any) -> Any:
    """Return an element with the function applied to everything in its containers.

    Containers are mappings, lists, tuples and named tuples; a mapping keeps its class
    where it can be changed and is a dict otherwise.  What moves itself by a method
    ``to``, such as a `PackedSequence`, is a leaf although it is a tuple.
    """
    if isinstance(element, torch.Tensor | np.ndarray):
        return function(element)  # Most are: asked first, since mappings are slow to.
    if isinstance(element, MutableMapping):
        mapped = copy.copy(element)
        for key, value in element.items():
            mapped[key] = map_leaves(function, value)
        return mapped
    if isinstance(element, Mapping):
        return {key: map_leaves(function, value) for key, value in element.items()}
    if hasattr(element, "to"):
        return function(element)
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        return type(element)(*(map_leaves(function, value) for value in element))
    if type(element) in (list, tuple):
        return type(element)(map_leaves(function, value) for value in element)
    return function(element)


def as_tensor_leaf(leaf: Any) -> Any:
    """Return an array of any library as a tensor, in place where that can be."""
    if isinstance(leaf, np.ndarray):
        return as_tensor_tree(leaf)
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, torch.Tensor):
        return torch.from_dlpack(leaf)
    return leaf
