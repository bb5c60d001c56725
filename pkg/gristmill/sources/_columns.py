"""Rows out of columns: what one record of a decoded row group or table is."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Int64Array

__all__ = ["Columns", "as_rows"]

# Bytes of a Python object in a column, its content aside: a str or bytes has about 50,
# an array or dict more.
OBJECT_BYTES = 64


class Columns:
    """Equally long columns, read by row.

    Args:
        arrays: By name; each of shape (N,), as pyarrow's ``to_numpy`` makes them.
        content_bytes: Bytes of what is in the objects of arrays of objects.

    Attributes:
        nbytes: Bytes of memory, about.

    Row ``i`` is the dict of ``{name: array[i]}``.  Objects that a caller could change
    (dicts, lists and arrays that are not read-only) are copied, because the columns
    are kept and serve the same row again.
    """

    def __init__(
        self, arrays: Mapping[str, npt.NDArray[Any]], content_bytes: int
    ) -> None:
        self._names = tuple(arrays)
        self._columns = [(array, _has_mutable(array)) for array in arrays.values()]
        self.nbytes = content_bytes + sum(
            array.nbytes + OBJECT_BYTES * array.size * array.dtype.hasobject
            for array in arrays.values()
        )

    def row(self, index: int) -> dict[str, Any]:
        """Return one row."""
        return {
            name: _own(array[index]) if mutable else array[index]
            for name, (array, mutable) in zip(self._names, self._columns, strict=True)
        }

    def rows(self, indices: Int64Array) -> list[dict[str, Any]]:
        """Return the rows of several indices, int64 of shape (k,)."""
        values = []
        for array, mutable in self._columns:
            # A list of an array has NumPy's scalars, as array[i] has.
            column = list(array[indices])
            values.append([_own(value) for value in column] if mutable else column)
        return as_rows(self._names, values)


def as_rows(names: Sequence[str], columns: Sequence[list[Any]]) -> list[dict[str, Any]]:
    """Return the rows of equally long lists of values."""
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _has_mutable(array: npt.NDArray[Any]) -> bool:
    # Values are of one type, but arrays among them may differ in being read-only.
    first = next((value for value in array if value is not None), None)
    return type(first) in (np.ndarray, dict, list) and any(map(_is_mutable, array))


def _is_mutable(value: Any) -> bool:
    if type(value) is np.ndarray:
        return value.flags.writeable or value.dtype.hasobject
    return type(value) in (dict, list)


def _own(value: Any) -> Any:
    """A copy that the caller may change; what nobody can change is returned as is."""
    return copy.deepcopy(value) if _is_mutable(value) else value
