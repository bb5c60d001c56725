"""Columns of sources: rows made of them, and batches gathered from them."""

from __future__ import annotations

import abc
import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.checks import stands_for
from gristmill._base.types import Alloc, Int64Array

__all__ = ["ColumnSource", "Columns", "as_rows", "gather", "is_plain"]

# What a column of a batch is made of: an array of shape (B, *S) that is the column, or
# the B leaves that are stacked to it.
Gathered: TypeAlias = npt.NDArray[Any] | list[Any]

# Bytes of a Python object in a column, its content aside: a str or bytes has about 50,
# an array or dict more.
OBJECT_BYTES = 64

# Kinds of dtype whose items are their bytes.
PLAIN_KINDS = "biufcmM"


class ColumnSource(abc.ABC):
    """A source that can gather a batch of its records column by column.

    A class whose rows are not those of `columns_at` overrides both.
    """

    @abc.abstractmethod
    def columns_at(self, keys: Int64Array, alloc: Alloc | None = None) -> Any:
        """Return the columns of some records, before their leaves are stacked.

        Args:
            keys: Record keys in [0, len), of shape (B,), any of them several times.
            alloc: Makes arrays of numbers. None leaves them to NumPy.

        Returns:
            What stacking the records would give: an array where a record is one, or a
            new dict in the order of a record's, with a list of its B leaves in place of
            each column that must still be stacked.

        Raises:
            Exception: The columns cannot be had. Reading the records one by one tells
                which is to blame.
        """

    @property
    def columns_are_rows(self) -> bool:
        """Whether `columns_at` is to be asked: no subclass serves other rows."""
        return all(
            stands_for(type(self), "columns_at", rows)
            for rows in ("__getitem__", "__getitems__")
        )


class Columns:
    """Equally long columns, read by row.

    `arrays` are of shape (N,), as pyarrow's ``to_numpy`` makes them; `content_bytes`
    are those of what is in objects, `nbytes` those of all memory, about.

    Row ``i`` is the dict of ``{name: array[i]}``.  Objects that a caller could change
    (dicts, lists and arrays that are not read-only) are copied, because the columns
    are kept and serve the same row again.

    Attributes:
        plain: The dtypes of the columns whose items are their bytes, by name.
    """

    def __init__(
        self, arrays: Mapping[str, npt.NDArray[Any]], content_bytes: int
    ) -> None:
        self.names = tuple(arrays)
        self._columns = {n: (array, _has_mutable(array)) for n, array in arrays.items()}
        self._content_bytes = content_bytes
        self.nbytes = content_bytes + sum(
            array.nbytes + OBJECT_BYTES * array.size * array.dtype.hasobject
            for array in arrays.values()
        )
        plain = tuple((n, a.dtype) for n, a in arrays.items() if is_plain(a))
        self.plain, self._row = _kind(plain)
        self._table: npt.NDArray[np.uint8] | None = None

    def table(self) -> npt.NDArray[np.uint8]:
        """Return the rows of the plain columns as bytes, one row behind the other.

        It is made once, in place of these columns, which become views of it; by one
        thread at a time.
        """
        if self._table is not None:
            return self._table
        table = np.empty(len(self._columns[self.names[0]][0]), self._row)
        rows: npt.NDArray[np.uint8] = table.view(np.uint8).reshape(len(table), -1)
        _core.interleave([self._columns[name][0] for name in self.plain], rows)
        for name, field in zip(self.plain, table.dtype.fields or (), strict=True):
            self._columns[name] = table[field], False
        self._table = rows
        return rows

    def row(self, index: int) -> dict[str, Any]:
        """Return one row."""
        return {
            name: _own(array[index]) if mutable else array[index]
            for name, (array, mutable) in self._columns.items()
        }

    def rows(self, indices: Int64Array) -> list[dict[str, Any]]:
        """Return the rows of several indices, int64 of shape (k,)."""
        return as_rows(self.names, [self.values(n, indices) for n in self.names])

    def values(self, name: str, indices: Int64Array) -> list[Any]:
        """Return what several rows have in one column."""
        array, mutable = self._columns[name]
        # A list of an array has NumPy's scalars, as array[i] has.
        values = list(array[indices])
        return [_own(value) for value in values] if mutable else values

    def take(self, indices: Int64Array) -> Columns:
        """Return columns of some rows only, which keep nothing else in memory."""
        arrays = {name: array[indices] for name, (array, _) in self._columns.items()}
        rows = max(1, len(next(iter(self._columns.values()))[0]))
        return Columns(arrays, self._content_bytes * len(indices) // rows)


@functools.lru_cache(64)
def _kind(
    columns: tuple[tuple[str, np.dtype[Any]], ...],
) -> tuple[dict[str, np.dtype[Any]], np.dtype[Any]]:
    """The dict of some columns' dtypes, and the dtype of a row of them.

    It is one dict for all that are alike: comparing those is fast.
    """
    fields = [(f"f{i}", dtype) for i, (_, dtype) in enumerate(columns)]
    return dict(columns), np.dtype(fields)


def gather(
    chunks: Sequence[Columns],
    numbers: Int64Array,
    offsets: Int64Array,
    alloc: Alloc | None,
) -> dict[str, Gathered]:
    """Return the columns of rows that lie in several chunks.

    Args:
        chunks: C of them, with the same names.
        numbers: The chunk of each row, of shape (B,), in [0, C).
        offsets: Its place there, of shape (B,).
        alloc: See `ColumnSource.columns_at`.
    """
    kinds: list[dict[str, np.dtype[Any]]] = []
    for chunk in chunks:
        if chunk.plain not in kinds:
            kinds.append(chunk.plain)
    found: dict[str, Gathered] = {}
    if len(kinds) == 1:
        found.update(_gather_plain(chunks, numbers, offsets, alloc or np.empty))
    else:
        found.update(_join(kinds, chunks, numbers, offsets, alloc or np.empty))
    others = [name for name in chunks[0].names if name not in found]
    if not others:
        return found
    places = [np.flatnonzero(numbers == number) for number in range(len(chunks))]
    for name in others:
        values: list[Any] = [None] * len(numbers)
        for chunk, here in zip(chunks, places, strict=True):
            some = chunk.values(name, offsets[here])
            for place, value in zip(here.tolist(), some, strict=True):
                values[place] = value
        found[name] = values
    return {name: found[name] for name in chunks[0].names}


def _gather_plain(
    chunks: Sequence[Columns], numbers: Int64Array, offsets: Int64Array, make: Any
) -> dict[str, npt.NDArray[Any]]:
    """The plain columns of rows, which are the same in all chunks."""
    plain = chunks[0].plain
    shape = (len(numbers),)
    outs = [make(shape, dtype) for dtype in plain.values()]
    if outs:
        tables = [chunk.table() for chunk in chunks]
        _core.gather_interleaved(tables, numbers, offsets, outs)
    return dict(zip(plain, outs, strict=True))


def _join(
    kinds: Sequence[Mapping[str, np.dtype[Any]]],
    chunks: Sequence[Columns],
    numbers: Int64Array,
    offsets: Int64Array,
    make: Any,
) -> dict[str, npt.NDArray[Any]]:
    """The columns that are plain in all chunks, whose dtypes differ between kinds.

    Integers become floats in the chunks where one is missing.
    """
    outs = {
        name: make((len(numbers),), np.result_type(*(kind[name] for kind in kinds)))
        for name in kinds[0]
        if all(name in kind for kind in kinds)
    }
    for kind in kinds:
        same = np.array([chunk.plain == kind for chunk in chunks])
        places = np.flatnonzero(same[numbers])
        part = _gather_plain(
            [chunk for chunk in chunks if chunk.plain == kind],
            (np.cumsum(same) - 1)[numbers[places]],
            offsets[places],
            np.empty,
        )
        for name, out in outs.items():
            out[places] = part[name]
    return outs


def as_rows(names: Sequence[str], columns: Sequence[list[Any]]) -> list[dict[str, Any]]:
    """Return the rows of equally long lists of values."""
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def is_plain(array: npt.NDArray[Any]) -> bool:
    """Whether stacking an array's items copies their bytes."""
    return (
        array.dtype.kind in PLAIN_KINDS
        and array.dtype.isnative
        and bool(array.flags.c_contiguous)
    )


def _has_mutable(array: npt.NDArray[Any]) -> bool:
    if not array.dtype.hasobject:
        return False
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
