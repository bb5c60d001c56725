"""Columns of sources: making rows from them, and gathering batches."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.argument_checks import stands_for
from gristmill._base.types import Alloc, Int64Array

__all__ = [
    "ColumnFacts",
    "ColumnForm",
    "ColumnSource",
    "Columns",
    "as_rows",
    "copy_array",
    "copy_nested",
    "gather",
    "is_plain",
    "writable_rows",
]

# The content of a batch's column: an array of shape (B, *S), or a list of the B leaves
# to be stacked.
Gathered: TypeAlias = npt.NDArray[Any] | list[Any]

# Bytes of a Python object in a column, without its content: about 50 for a str or
# bytes, more for an array or dict.
OBJECT_BYTES = 64

# Kinds of dtypes whose items can be copied as bytes.
PLAIN_KINDS = "biufcmM"

# Mutable types, and types that may contain mutable values.
CONTAINERS = frozenset([np.ndarray, dict, list, tuple])


class ColumnFacts(NamedTuple):
    """Facts that decide the dtype of a column together with its type.

    Attributes:
        has_nulls: Whether a value may be missing in any row.
        has_large_ints: Whether an integer may be too large to be exact as float64.
    """

    has_nulls: bool = False
    has_large_ints: bool = False


class ColumnForm(NamedTuple):
    """The conversion of a column's values for rows and batches.

    Attributes:
        copy: Copies a value; None if a caller cannot change the values.
        keeps_objects: Whether stacked values contain objects that a caller could
            change, so that batches need copies.
        is_objects: Whether the column is an array of objects in every batch. NumPy
            would make one only for batches that lack a value.
    """

    copy: Callable[[Any], Any] | None = None
    keeps_objects: bool = False
    is_objects: bool = False

    def in_batch(self, values: npt.NDArray[np.object_]) -> Gathered:
        """Return a batch's column of objects; may change the array `values`."""
        if self.copy is not None and self.keeps_objects:
            for i, value in enumerate(values):
                values[i] = self.copy(value)
        return values if self.is_objects else list(values)


class ColumnSource(abc.ABC):
    """A source that can gather a batch of its records column by column.

    If a subclass overrides only `__getitem__`, its `columns_at` is not used.
    """

    @abc.abstractmethod
    def columns_at(self, keys: Int64Array, alloc: Alloc | None = None) -> Any:
        """Return the columns of some records, before their leaves are stacked.

        Args:
            keys: Record keys in [0, len), of shape (B,); keys may repeat.
            alloc: Allocates arrays of numbers.  None: NumPy allocates them.

        Returns:
            The result of stacking the records: an array if a record is one, or a new
            dict in the order of a record's fields. A column that must still be stacked
            is a list of its B leaves.

        Raises:
            Exception: The columns cannot be read. Read the records one by one to find
                the bad record.
        """

    def __iter__(self) -> Iterator[Any]:
        # Without this method, a loop over the rows would end at any IndexError.
        source: Any = self
        for key in range(len(source)):
            yield source[key]

    @property
    def columns_are_rows(self) -> bool:
        """True if `columns_at` may be called: no subclass serves other rows."""
        return all(
            stands_for(type(self), "columns_at", rows)
            for rows in ("__getitem__", "__getitems__")
        )


class Columns:
    """Equally long columns, read by row.

    Row ``i`` is the dict of ``{name: array[i]}``.  The columns stay in memory and may
    serve the same row again, so rows have copies of nested values.

    Args:
        arrays: Columns by name, of shape (N,).
        content_bytes: Approximate size of the content of objects in columns.
        forms: The form of each column, by name.

    Attributes:
        names: Names of the columns, in the order of rows.
        nbytes: Approximate size of all memory.
        plain: The dtypes of the columns whose items can be copied as bytes, by name.
        forms: The form of each column, by name.
    """

    def __init__(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        content_bytes: int,
        forms: Mapping[str, ColumnForm],
    ) -> None:
        self.names = tuple(arrays)
        self._columns = dict(arrays)
        self._content_bytes = content_bytes
        self.forms = forms
        self._copiers = {
            n: form.copy for n, form in forms.items() if form.copy is not None
        }
        self.nbytes = content_bytes + sum(
            array.nbytes + OBJECT_BYTES * array.size * array.dtype.hasobject
            for array in arrays.values()
        )
        plain = tuple((n, a.dtype) for n, a in arrays.items() if is_plain(a))
        self.plain, self._row = _row_layout(plain)
        self._table: npt.NDArray[np.uint8] | None = None

    def table(self) -> npt.NDArray[np.uint8]:
        """Return the rows of the plain columns as bytes, one row after the other.

        The table is made once. The columns are replaced by views of it, so that the
        data is not kept twice. Only one thread at a time may call this.
        """
        if self._table is not None:
            return self._table
        table = np.empty(len(self._columns[self.names[0]]), self._row)
        rows: npt.NDArray[np.uint8] = table.view(np.uint8).reshape(len(table), -1)
        _core.interleave([self._columns[name] for name in self.plain], rows)
        for name, field in zip(self.plain, table.dtype.fields or (), strict=True):
            self._columns[name] = table[field]
        self._table = rows
        return rows

    def row(self, index: int) -> dict[str, Any]:
        """Return one row."""
        row = {name: array[index] for name, array in self._columns.items()}
        for name, copy in self._copiers.items():
            row[name] = copy(row[name])
        return row

    def rows(self, indices: Int64Array) -> list[dict[str, Any]]:
        """Return the rows of several indices, int64 of shape (k,)."""
        return as_rows({n: a[indices] for n, a in self._columns.items()}, self._copiers)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column; the caller must not change its values."""
        return self._columns[name]

    def take(self, indices: Int64Array) -> Columns:
        """Return the columns of some rows, without keeping the others in memory."""
        arrays = {name: array[indices] for name, array in self._columns.items()}
        rows = max(1, len(self._columns[self.names[0]]))
        content_bytes = self._content_bytes * len(indices) // rows
        return Columns(arrays, content_bytes, self.forms)


@functools.lru_cache(64)
def _row_layout(
    columns: tuple[tuple[str, np.dtype[Any]], ...],
) -> tuple[dict[str, np.dtype[Any]], np.dtype[Any]]:
    """Return a dict of columns' dtypes by name, and the dtype of a row of them.

    Equal columns share one cached dict, so that comparing the dicts is fast.
    """
    fields = [(f"f{i}", dtype) for i, (_, dtype) in enumerate(columns)]
    return dict(columns), np.dtype(fields)


def gather(
    chunks: Sequence[Columns],
    chunk_numbers: Int64Array,
    offsets: Int64Array,
    alloc: Alloc | None,
) -> dict[str, Gathered]:
    """Return the columns of rows that lie in several chunks.

    Args:
        chunks: C chunks that have the same names.
        chunk_numbers: The chunk of each row, of shape (B,), in [0, C).
        offsets: The place of each row in its chunk, of shape (B,).
        alloc: See `ColumnSource.columns_at`.
    """
    plain = chunks[0].plain
    if any(chunk.plain is not plain and chunk.plain != plain for chunk in chunks):
        dtypes = [chunk.plain for chunk in chunks]
        raise ValueError(
            f"All chunks must have columns of the same dtypes, got {dtypes}."
        )
    outs = [
        (alloc or np.empty)((len(chunk_numbers),), dtype) for dtype in plain.values()
    ]
    if outs:
        # ParquetDataSource has made them under its lock, except for chunks from `take`,
        # which only this thread has.
        tables = [chunk.table() for chunk in chunks]
        _core.gather_interleaved(tables, chunk_numbers, offsets, outs)
    gathered: dict[str, Gathered] = dict(zip(plain, outs, strict=True))
    others = [name for name in chunks[0].names if name not in gathered]
    if not others:
        return gathered
    rows_by_chunk = [
        np.flatnonzero(chunk_numbers == chunk_number)
        for chunk_number in range(len(chunks))
    ]
    for name in others:
        values = np.empty(len(chunk_numbers), np.object_)
        for chunk, rows in zip(chunks, rows_by_chunk, strict=True):
            values[rows] = chunk.column(name)[offsets[rows]]
        gathered[name] = chunks[0].forms[name].in_batch(values)
    return {name: gathered[name] for name in chunks[0].names}


def as_rows(
    columns: Mapping[str, Iterable[Any]],
    copiers: Mapping[str, Callable[[Any], Any]],
) -> list[dict[str, Any]]:
    """Return the rows of equally long columns.

    Args:
        columns: Columns by name; arrays yield NumPy scalars.
        copiers: Functions that copy the values of a column, by name.
    """
    values = [map(copiers[n], c) if n in copiers else c for n, c in columns.items()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def is_plain(array: npt.NDArray[Any]) -> bool:
    """Return whether stacking an array's items only copies their bytes."""
    return (
        array.dtype.kind in PLAIN_KINDS
        and array.dtype.isnative
        and bool(array.flags.c_contiguous)
    )


class _RowCopies:
    """Returns copies of the rows of an array."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    def __getitem__(self, index: int) -> Any:
        return self._array[index].copy()


def writable_rows(array: npt.NDArray[Any]) -> npt.NDArray[Any] | _RowCopies:
    """Return an array, or an object that copies its rows if it is read-only.

    Rows of a memory-mapped file stay views, so that a caller can read parts of large
    rows.
    """
    if isinstance(array, np.memmap):
        return np.asarray(array)
    return array if array.ndim == 1 or array.flags.writeable else _RowCopies(array)


def copy_array(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    """Return a copy of an array of immutable items, or None for None."""
    return None if array is None else array.copy()


def copy_nested(value: Any) -> Any:
    """Return a deep copy of an array, dict, list or tuple; or any other value."""
    kind = type(value)
    if kind is np.ndarray:
        value = value.copy()
        if value.dtype.hasobject:
            for i, item in enumerate(value):
                if type(item) in CONTAINERS:
                    value[i] = copy_nested(item)
        return value
    if kind is dict:
        return {name: copy_nested(item) for name, item in value.items()}
    return kind(map(copy_nested, value)) if kind is list or kind is tuple else value
