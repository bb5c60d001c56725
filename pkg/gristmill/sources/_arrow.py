"""Tables of pyarrow as data sources; needs the pyarrow package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gristmill import _core
from gristmill._base.types import Alloc, Int64Array
from gristmill.sources._arrow_values import facts_of, form_of, to_array
from gristmill.sources._columns import ColumnSource, Gathered, as_rows, is_plain

__all__ = ["ArrowSource", "ChunkViews", "as_arrays"]


def as_arrays(table: pa.Table | pa.RecordBatch) -> dict[str, npt.NDArray[Any]] | None:
    """Return views of a table's columns, or None if one cannot be viewed.

    A view needs a column of numbers, times or fixed-size lists of these, in one chunk
    and without missing values. Its shape is (N,), or (N, k) for lists of k values.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        view = _view_of_column(column)
        if view is None or name in arrays:
            return None
        arrays[name] = view
    return arrays or None


def _view_of_column(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any] | None:
    if isinstance(column, pa.ChunkedArray):
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        return _view_of_chunk(chunks[0]) if len(chunks) == 1 else None
    return _view_of_chunk(column)


def _view_of_chunk(column: pa.Array) -> npt.NDArray[Any] | None:
    values, shape = column, [len(column)]
    while pa.types.is_fixed_size_list(values.type) and not values.null_count:
        shape.append(values.type.list_size)
        values = values.flatten()
    if not pa.types.is_primitive(values.type):
        return None  # Encoded values and extension types may have "views", too.
    try:
        view: npt.NDArray[Any] = values.to_numpy(zero_copy_only=True)
    except (pa.ArrowInvalid, NotImplementedError):
        return None
    return None if view.dtype.hasobject else view.reshape(shape)


class ChunkViews:
    """The columns of a table that can be viewed as arrays, chunk by chunk.

    The same columns as for `as_arrays`, except that there may be several chunks, with
    the same boundaries in all columns. Nested lists are excluded, because rows have
    them as objects.

    Attributes:
        names: Names of these columns, in the table's order.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        # For each of `names`: its chunks with rows, and the shape and dtype of a row.
        self._chunks: list[list[pa.Array]] = []
        self._row_layouts: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self._chunk_bounds = np.zeros(1, np.int64)
        self.names: list[str] = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            chunks = [chunk for chunk in column.chunks if len(chunk)]
            view = _view_of_chunk(chunks[0]) if chunks else None
            if view is None or view.ndim > 2 or not is_plain(view):
                continue
            if _has_missing_values(column):
                continue
            bounds = np.cumsum([0, *map(len, chunks)])
            if not self.names:
                self._chunk_bounds = bounds
            if np.array_equal(bounds, self._chunk_bounds):
                self.names.append(name)
                self._chunks.append(chunks)
                self._row_layouts.append((view.shape[1:], view.dtype))
        # Created on first use, because there may be very many. Threads that race here
        # create equal views.
        self._views: dict[int, tuple[npt.NDArray[Any], ...]] = {}

    def __reduce__(self) -> tuple[type, tuple[pa.Table]]:
        return type(self), (self._table,)  # Shared with other owners in the pickle.

    def gather(self, keys: Int64Array, alloc: Alloc | None) -> dict[str, Gathered]:
        """Return the columns of some rows.  See `ColumnSource.columns_at`."""
        if not self.names:
            return {}
        chunks, chunk_numbers, offsets = _core.find_chunks(self._chunk_bounds, keys)
        allocate = alloc or np.empty
        arrays = [
            allocate((len(keys), *shape), dtype) for shape, dtype in self._row_layouts
        ]
        views = [self._views.get(c) or self._views_of_chunk(c) for c in chunks.tolist()]
        _core.gather_chunks(views, chunk_numbers, offsets, arrays)
        return dict(zip(self.names, arrays, strict=True))

    def _views_of_chunk(self, number: int) -> tuple[npt.NDArray[Any], ...]:
        views = [_view_of_chunk(chunks[number]) for chunks in self._chunks]
        all_views = self._views[number] = tuple(v for v in views if v is not None)
        return all_views


def _has_missing_values(column: pa.ChunkedArray) -> bool:
    """Return whether a column, or one of its fixed-size lists, lacks a value."""
    if column.null_count:
        return True
    kind = column.type
    return pa.types.is_fixed_size_list(kind) and any(
        _has_missing_values(pa.chunked_array([chunk.flatten()]))
        for chunk in column.chunks
    )


class ArrowSource(ColumnSource):
    """Serve the rows of a pyarrow Table or RecordBatch.

    A loader wraps a table in this class, or in `TableSource` if all columns can be
    viewed as arrays.

    Record ``i`` is a dict of row ``i``, with the values that docs/record-files.md lists
    for each type.  Columns of ``string_view`` and ``binary_view`` are copied once, into
    ``large_string`` and ``large_binary``.

    Raises:
        ValueError: Two columns have the same name.

    Example:
        >>> source = ArrowSource(pa.table({"name": ["a", "b"], "x": [1, None]}))
        >>> source[0], len(source)
        ({'name': 'a', 'x': np.float64(1.0)}, 2)
    """

    def __init__(self, table: pa.Table | pa.RecordBatch) -> None:
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        self._names = tuple(table.column_names)
        if len(set(self._names)) != len(self._names):
            raise ValueError(
                "The columns of data_source must have different names, got"
                f" {list(self._names)}. Rename the duplicates, because rows are dicts."
            )
        self._table = _without_views(table)
        self._views = ChunkViews(self._table)
        self._others = [name for name in self._names if name not in self._views.names]
        self._inspect_columns()

    def _inspect_columns(self) -> None:
        """Create the columns and copiers, which are not pickled, from the table."""
        columns = zip(self._names, self._table.columns, strict=True)
        self._columns = {name: _Column(column) for name, column in columns}
        self._copiers = {
            name: column.form.copy
            for name, column in self._columns.items()
            if column.form.copy is not None
        }

    def __getstate__(self) -> dict[str, Any]:
        # Pickling the columns would pickle the table's data a second time.
        return {
            n: v for n, v in vars(self).items() if n not in ("_columns", "_copiers")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._inspect_columns()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} out of range for {len(self)}")
        columns = zip(
            self._columns.items(), self._table.slice(index, 1).columns, strict=True
        )
        row = {
            name: to_array(values, column.facts)[0]
            for (name, column), values in columns
        }
        for name, copy in self._copiers.items():
            row[name] = copy(row[name])
        return row

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return several rows; each column is read once."""
        rows = np.asarray(indices, np.int64)
        columns = {name: column.take(rows) for name, column in self._columns.items()}
        return as_rows(columns, self._copiers)

    def columns_at(
        self, keys: Int64Array, alloc: Alloc | None = None
    ) -> dict[str, Gathered]:
        """Return the columns of several rows, for batches, without making rows.

        Args:
            keys: Row numbers, int64 of shape (B,).
            alloc: Allocates the arrays that are gathered. None: NumPy allocates them.

        Returns:
            For each column an array of shape (B, *S), or a list of its B values if
            they must be stacked.

        Raises:
            IndexError: A row is out of range.
        """
        columns = self._views.gather(keys, alloc)
        for name in self._others:
            array = self._columns[name].take(keys)
            if array.dtype.hasobject:
                columns[name] = self._columns[name].form.in_batch(array)
            else:
                columns[name] = out = (alloc or np.empty)(array.shape, array.dtype)
                np.copyto(out, array)
        return {name: columns[name] for name in self._names}

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name!r}: {f.type}" for f in self._table.schema)
        return f"ArrowSource(rows={len(self)}, columns={{{fields}}})"


class _Column:
    """A column of a table, whose rows are taken chunk by chunk.

    pyarrow would join all chunks to take some rows, and cannot join all types.

    Attributes:
        facts: Facts about all rows.
        form: How values are converted for rows and batches.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._chunks = [chunk for chunk in column.chunks if len(chunk)]
        self._bounds = np.cumsum([0, *map(len, self._chunks)])
        # All chunks have one type.  Offsets of a chunk matter only for matrices.
        checked = self._chunks if _has_matrices(column.type) else self._chunks[:1]
        self._is_takeable = all(map(_is_takeable, checked))
        self.facts = facts_of(column)
        self.form = form_of(column.type, self.facts)

    def take(self, rows: Int64Array) -> npt.NDArray[Any]:
        """Return the values of some rows; IndexError if one is out of range."""
        chunks, chunk_numbers, offsets = _core.find_chunks(self._bounds, rows)
        rows_by_chunk = [np.flatnonzero(chunk_numbers == i) for i in range(len(chunks))]
        parts = [
            self._take(self._chunks[chunk], offsets[chunk_rows])
            for chunk, chunk_rows in zip(chunks.tolist(), rows_by_chunk, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        values = np.empty(len(rows), parts[0].dtype if parts else np.object_)
        for part, chunk_rows in zip(parts, rows_by_chunk, strict=True):
            values[chunk_rows] = part
        return values

    def _take(self, chunk: pa.Array, offsets: Int64Array) -> npt.NDArray[Any]:
        if self._is_takeable:
            return to_array(chunk.take(pa.array(offsets)), self.facts)
        slices = (chunk.slice(offset, 1) for offset in offsets.tolist())
        return np.concatenate([to_array(part, self.facts) for part in slices])


def _is_takeable(chunk: pa.Array) -> bool:
    """Return whether pyarrow takes rows from a chunk, and takes the right ones."""
    if _has_matrices(chunk.type):
        # If the array has an offset, pyarrow silently takes the wrong values.
        values = chunk
        while pa.types.is_fixed_size_list(values.type) and not values.offset:
            values = values.values
        if values.offset or _has_matrices(values.type):
            return False
    try:
        chunk.take(pa.array([0]))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _has_matrices(kind: pa.DataType) -> bool:
    """Return whether a type has fixed-size lists in fixed-size lists."""
    if isinstance(kind, pa.BaseExtensionType):
        return _has_matrices(kind.storage_type)
    is_list = pa.types.is_fixed_size_list
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return (is_list(kind) and any(map(is_list, inner))) or any(
        map(_has_matrices, inner)
    )


def _without_views(table: pa.Table) -> pa.Table:
    """Return an equal table with string and binary views replaced by copies."""
    for i, field in enumerate(table.schema):
        plain = _plain_type(field.type)
        if plain != field.type and _is_castable(field.type):
            column = table.column(i).cast(plain)
            table = table.set_column(i, field.with_type(plain), column)
    return table


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with string and binary views replaced by plain types."""
    # Compared by name: the oldest supported pyarrow cannot check for views.
    if str(kind) in ("string_view", "binary_view"):
        return pa.large_string() if str(kind) == "string_view" else pa.large_binary()
    if pa.types.is_map(kind):
        fields = [_plain_field(kind.key_field), _plain_field(kind.item_field)]
        return pa.map_(*fields, keys_sorted=kind.keys_sorted)
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([_plain_field(field) for field in fields])
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    return kind


def _is_castable(kind: pa.DataType) -> bool:
    """Return whether casting a column of this type in pyarrow keeps all values."""
    types = pa.types
    if not kind.num_fields:
        return not (types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType))
    lists = types.is_list, types.is_large_list, types.is_fixed_size_list
    if not any(is_kind(kind) for is_kind in (*lists, types.is_struct, types.is_map)):
        return False
    return all(_is_castable(kind.field(i).type) for i in range(kind.num_fields))


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))
