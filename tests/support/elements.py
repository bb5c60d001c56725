"""Compares elements of pipelines."""

from typing import Any

import numpy as np


def same(ours: Any, theirs: Any) -> bool:
    """Return whether types, dtypes, shapes, values and orders of keys are equal.

    Arrays must also be equally writable.
    """
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, (np.ndarray, np.generic)):
        if ours.flags.writeable != theirs.flags.writeable:
            return False
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return False
        if theirs.dtype.hasobject:
            return same(ours.ravel().tolist(), theirs.ravel().tolist())
        return np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind in "fc")
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(
            same(ours[key], theirs[key]) for key in theirs
        )
    if isinstance(theirs, (tuple, list)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)
