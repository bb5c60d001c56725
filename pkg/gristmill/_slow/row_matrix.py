"""The arrays that features are packed into.  The twin of ``gristmill._hot.row_matrix``.

Cells run along the second axis of an array of shape ``(rows, length, *S)``.
"""

from __future__ import annotations

import collections.abc
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def length_of(leaf: Any, name: str) -> int:
    """Return how many cells a feature takes: its first extent, 1 for a scalar.

    Raises:
        ValueError: It is no array or scalar.
    """
    if leaf is None or isinstance(leaf, (list, tuple, collections.abc.Mapping)):
        raise ValueError(
            f"Structures are not the same: {name} of the element is a"
            f" {type(leaf).__name__}, but length_struct has a length there, which is"
            " for an array or a scalar. Make it one in a map before packing, such as"
            " by np.asarray."
        )
    return 1 if np.ndim(leaf) == 0 else len(leaf)


def make_matrix(shape: tuple[int, ...], leaf: Any, padding: Any) -> Array:
    """Return an array of padding for leaves like this one; `shape` comes first."""
    array = np.asarray(leaf)
    # Python's bool counts as an int, as in Grain.
    dtype = np.dtype(np.int64) if isinstance(leaf, int) else array.dtype
    if padding is None:
        return np.zeros((*shape, *array.shape[1:]), dtype)
    return np.full((*shape, *array.shape[1:]), padding, dtype)


def blank(cells: Array, padding: Any) -> None:
    """Set cells to what they hold where nothing is packed."""
    cells[...] = np.zeros((), cells.dtype) if padding is None else padding


def add_note(error: BaseException, name: str, values: Array) -> None:
    """Say which feature did not fit."""
    error.add_note(
        f"while packing {name} into cells of dtype {values.dtype} and shape"
        f" {values.shape[2:]}, which the batch has from its first element"
    )
