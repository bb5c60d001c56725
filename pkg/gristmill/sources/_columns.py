"""Columns of sources: rows made of them, and batches gathered from them."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.checks import stands_for
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

# What a column of a batch is made of: an array of shape (B, *S) that is the column, or
# the B leaves that are stacked to it.
Gathered: TypeAlias = npt.NDArray[Any] | list[Any]

# Bytes of a Python object in a column, its content aside: a str or bytes has about 50,
# an array or dict more.
OBJECT_BYTES = 64

# Kinds of dtype whose items are their bytes.
PLAIN_KINDS = "biufcmM"

# Types of values that a caller could change, or that hold such values.
CONTAINERS = frozenset([np.ndarray, dict, list, tuple])


class ColumnFacts(NamedTuple):
    """What decides the dtype of a column, besides its type.

    Attributes:
        has_nulls: Whether a value may be missing in one of all rows.
        has_large: Whether an integer may be too large to be exact as float64.
    """

    has_nulls: bool = False
    has_large: bool = False


class ColumnForm(NamedTuple):
    """How the values of a column come into rows and batches.

    Attributes:
        copy: Copies a value that a caller could change. None if there are no such.
        keeps_objects: Whether stacked values hold objects that a caller could change.
        is_objects: Whether the column is an array of objects in every batch. NumPy
            would make one only in batches that lack a value.
    """

    copy: Callable[[Any], Any] | None = None
    keeps_objects: bool = False
    is_objects: bool = False

    def in_batch(self, values: npt.NDArray[np.object_]) -> Gathered:
        """Return objects as what a batch is made of; changes the array of them."""
        if self.copy is not None and self.keeps_objects:
            for place, value in enumerate(values):
                values[place] = self.copy(value)
        return values if self.is_objects else list(values)


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

    def __iter__(self) -> Iterator[Any]:
        # Without this, a loop over the rows ends at an IndexError that reading raises.
        source: Any = self
        for key in range(len(source)):
            yield source[key]

    @property
    def columns_are_rows(self) -> bool:
        """Whether `columns_at` is to be asked: no subclass serves other rows."""
        return all(
            stands_for(type(self), "columns_at", rows)
            for rows in ("__getitem__", "__getitems__")
        )


class Columns:
    """Equally long columns, read by row.

    Row ``i`` is the dict of ``{name: array[i]}``.  The columns are kept and serve the
    same row again, so rows have copies of nested values.

    Args:
        arrays: Columns by name, of shape (N,).
        content_bytes: Bytes of what the objects in columns hold, about.
        forms: The form of each column, by name.

    Attributes:
        names: Of the columns, in the order of rows.
        nbytes: Of all memory, about.
        plain: The dtypes of the columns whose items are their bytes, by name.
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
        self.plain, self._row = _kind(plain)
        self._table: npt.NDArray[np.uint8] | None = None

    def table(self) -> npt.NDArray[np.uint8]:
        """Return the rows of the plain columns as bytes, one row behind the other.

        It is made once, in place of these columns, which become views of it; by one
        thread at a time.
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
        """Return a column, whose values the caller must not change."""
        return self._columns[name]

    def take(self, indices: Int64Array) -> Columns:
        """Return columns of some rows only, which keep nothing else in memory."""
        arrays = {name: array[indices] for name, array in self._columns.items()}
        rows = max(1, len(self._columns[self.names[0]]))
        content_bytes = self._content_bytes * len(indices) // rows
        return Columns(arrays, content_bytes, self.forms)


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
    plain = chunks[0].plain
    if any(chunk.plain is not plain and chunk.plain != plain for chunk in chunks):
        raise ValueError("The dtypes of columns differ between chunks.")
    outs = [(alloc or np.empty)((len(numbers),), dtype) for dtype in plain.values()]
    if outs:
        tables = [chunk.table() for chunk in chunks]
        _core.gather_interleaved(tables, numbers, offsets, outs)
    found: dict[str, Gathered] = dict(zip(plain, outs, strict=True))
    others = [name for name in chunks[0].names if name not in found]
    if not others:
        return found
    places = [np.flatnonzero(numbers == number) for number in range(len(chunks))]
    for name in others:
        values = np.empty(len(numbers), np.object_)
        for chunk, here in zip(chunks, places, strict=True):
            values[here] = chunk.column(name)[offsets[here]]
        found[name] = chunks[0].forms[name].in_batch(values)
    return {name: found[name] for name in chunks[0].names}


def as_rows(
    columns: Mapping[str, Iterable[Any]],
    copiers: Mapping[str, Callable[[Any], Any]],
) -> list[dict[str, Any]]:
    """Return the rows of equally long columns.

    Args:
        columns: Columns by name; an array gives NumPy's scalars.
        copiers: What copies the values of a column, by name.
    """
    values = [map(copiers[n], c) if n in copiers else c for n, c in columns.items()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def is_plain(array: npt.NDArray[Any]) -> bool:
    """Whether stacking an array's items copies their bytes."""
    return (
        array.dtype.kind in PLAIN_KINDS
        and array.dtype.isnative
        and bool(array.flags.c_contiguous)
    )


class _RowCopies:
    """Gives copies of the rows of an array."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array

    def __getitem__(self, index: int) -> Any:
        return self._array[index].copy()


def writable_rows(array: npt.NDArray[Any]) -> npt.NDArray[Any] | _RowCopies:
    """Return an array, or what copies its rows if those would be read-only.

    Rows of a mapped file stay views, so that a caller can read parts of large ones.
    """
    if isinstance(array, np.memmap):
        return np.asarray(array)
    return array if array.ndim == 1 or array.flags.writeable else _RowCopies(array)


def copy_array(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    """Return a copy of an array whose items nobody can change, or None for None."""
    return None if array is None else array.copy()


def copy_nested(value: Any) -> Any:
    """Return a copy of an array, dict or list in all that it holds, else the value."""
    kind = type(value)
    if kind is np.ndarray:
        value = value.copy()
        if value.dtype.hasobject:
            for place, item in enumerate(value):
                if type(item) in CONTAINERS:
                    value[place] = copy_nested(item)
        return value
    if kind is dict:
        return {name: copy_nested(item) for name, item in value.items()}
    return kind(map(copy_nested, value)) if kind is list or kind is tuple else value
