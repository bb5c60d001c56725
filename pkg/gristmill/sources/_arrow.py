"""Tables of pyarrow as data sources; needs the pyarrow package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gristmill import _core
from gristmill._base.types import Alloc, Int64Array
from gristmill.sources._columns import ColumnSource, Gathered, as_rows, is_plain

__all__ = ["ArrowSource", "ChunkViews", "as_arrays"]


def as_arrays(table: pa.Table | pa.RecordBatch) -> dict[str, npt.NDArray[Any]] | None:
    """Return views of a table's columns, or None where one cannot be viewed.

    Columns of numbers, times and fixed-size lists of these can, in one chunk and
    without missing values: they have shape (N,), lists of k values (N, k).
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        view = _view(column)
        if view is None or name in arrays:
            return None
        arrays[name] = view
    return arrays or None


def _view(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any] | None:
    if isinstance(column, pa.ChunkedArray):
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        return _view_of_chunk(chunks[0]) if len(chunks) == 1 else None
    return _view_of_chunk(column)


def _view_of_chunk(column: pa.Array) -> npt.NDArray[Any] | None:
    values, shape = column, [len(column)]
    while pa.types.is_fixed_size_list(values.type) and not values.null_count:
        shape.append(values.type.list_size)
        values = values.flatten()
    try:
        view: npt.NDArray[Any] = values.to_numpy(zero_copy_only=True)
    except (pa.ArrowInvalid, NotImplementedError):
        return None
    return None if view.dtype.hasobject else view.reshape(shape)


class ChunkViews:
    """The columns of a table that can be viewed as arrays, chunk by chunk.

    These are columns as those of `as_arrays`, but in any number of chunks, which are
    the same for all of them, and without lists in lists: rows have those as objects.

    Attributes:
        names: Of these columns, in the table's order.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._chunks: list[list[pa.Array]] = []
        self._rows: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self._bounds = np.zeros(1, np.int64)
        self.names: list[str] = []
        for name, column in zip(table.column_names, table.columns, strict=True):
            chunks = [chunk for chunk in column.chunks if len(chunk)]
            view = _view_of_chunk(chunks[0]) if chunks else None
            if view is None or view.ndim > 2 or not is_plain(view):
                continue
            if _lacks_values(column):
                continue
            bounds = np.cumsum([0, *map(len, chunks)])
            if not self.names:
                self._bounds = bounds
            if np.array_equal(bounds, self._bounds):
                self.names.append(name)
                self._chunks.append(chunks)
                self._rows.append((view.shape[1:], view.dtype))
        # Made when they are first needed: there may be very many.
        self._views: dict[int, tuple[npt.NDArray[Any], ...]] = {}

    def __reduce__(self) -> tuple[type, tuple[pa.Table]]:
        return type(self), (self._table,)  # Pickled once where others have it, too.

    def gather(self, keys: Int64Array, alloc: Alloc | None) -> dict[str, Gathered]:
        """Return the columns of some rows.  See `ColumnSource.columns_at`."""
        if not self.names:
            return {}
        chunks, numbers, offsets = _core.find_chunks(self._bounds, keys)
        make = alloc or np.empty
        outs = [make((len(keys), *shape), dtype) for shape, dtype in self._rows]
        views = [self._views.get(c) or self._view(c) for c in chunks.tolist()]
        _core.gather_chunks(views, numbers, offsets, outs)
        return dict(zip(self.names, outs, strict=True))

    def _view(self, number: int) -> tuple[npt.NDArray[Any], ...]:
        views = [_view_of_chunk(chunks[number]) for chunks in self._chunks]
        found = self._views[number] = tuple(v for v in views if v is not None)
        return found


def _lacks_values(column: pa.ChunkedArray) -> bool:
    """Whether a value is missing in a column, or in its fixed-size lists."""
    if column.null_count:
        return True
    kind = column.type
    return pa.types.is_fixed_size_list(kind) and any(
        _lacks_values(pa.chunked_array([chunk.flatten()])) for chunk in column.chunks
    )


class ArrowSource(ColumnSource):
    """Serve the rows of a pyarrow Table or RecordBatch.

    A loader that is given a table makes one of these itself, or a `TableSource` where
    the columns can be viewed as arrays.

    Record ``i`` is the dict of ``{name: table.column(name).to_numpy()[i]}``, as in
    `ParquetDataSource`.  What is nested (lists, structs, maps) is converted for each
    row on its own: whole numbers in it stay whole where another row lacks one.
    Columns of ``string_view`` and ``binary_view`` are copied once, into
    ``large_string`` and ``large_binary``.

    Raises:
        ValueError: Two columns have one name.

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
                f"data_source has two columns of one name: {list(self._names)}. Rows"
                " are dicts, which hold one of each: rename them."
            )
        self._table = _without_views(table)
        columns = zip(self._names, self._table.columns, strict=True)
        self._dtypes = {name: _dtype_of(column) for name, column in columns}
        self._views = ChunkViews(self._table)
        self._others = [name for name in self._names if name not in self._views.names]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} out of range for {len(self)}")
        return self._rows(self._table.slice(index, 1))[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return several rows, taken out of each column at once."""
        return self._rows(self._table.take(pa.array(indices, pa.int64())))

    def columns_at(
        self, keys: Int64Array, alloc: Alloc | None = None
    ) -> dict[str, Gathered]:
        """Return the columns of several rows, for batches; makes no rows.

        Args:
            keys: Row numbers, int64 of shape (B,).
            alloc: Makes the arrays that are gathered. None leaves them to NumPy.

        Returns:
            For each column an array of shape (B, *S), or the list of its B values
            where they are not numbers or times, or some are missing.

        Raises:
            IndexError: A row is out of range.
        """
        found = self._views.gather(keys, alloc)
        if self._others:
            some = self._table.select(self._others).take(pa.array(keys))
            found.update(zip(self._others, self._values(some), strict=True))
        return {name: found[name] for name in self._names}

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name!r}: {f.type}" for f in self._table.schema)
        return f"ArrowSource(rows={len(self)}, columns={{{fields}}})"

    def _rows(self, table: pa.Table) -> list[dict[str, Any]]:
        return as_rows(self._names, self._values(table))

    def _values(self, table: pa.Table) -> list[list[Any]]:
        """The values of each column of some rows of the table."""
        return [
            _each_alone(column) if dtype is None else _together(column, dtype)
            for name, column in zip(table.column_names, table.columns, strict=True)
            for dtype in [self._dtypes[name]]
        ]


def _without_views(table: pa.Table) -> pa.Table:
    """Return a table of equal values, without the types that cannot be taken from."""
    for i, field in enumerate(table.schema):
        plain = _plain_type(field.type)
        if plain != field.type:
            column = table.column(i).cast(plain)
            table = table.set_column(i, field.with_type(plain), column)
    return table


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with strings and bytes in place of views of them."""
    # By name: the oldest pyarrow has no functions that ask for views.
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


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


def _dtype_of(column: pa.ChunkedArray) -> np.dtype[Any] | None:
    """The dtype of a whole column; None where rows must be converted one by one."""
    kind = column.type
    if pa.types.is_nested(kind) and not _lists_whole(column):
        return None
    missing = 1 if column.null_count else 0
    dtype: np.dtype[Any] = pa.nulls(missing, kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def _lists_whole(column: pa.ChunkedArray) -> bool:
    """Whether these are lists of numbers, none of which is missing."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    numbers = pa.types.is_integer(kind.value_type) or pa.types.is_floating(
        kind.value_type
    )
    return numbers and all(chunk.values.null_count == 0 for chunk in column.chunks)


def _together(column: pa.ChunkedArray, dtype: np.dtype[Any]) -> list[Any]:
    # The rows at hand may lack the missing values that decide the column's dtype.
    return list(column.to_numpy().astype(dtype, copy=False))


def _each_alone(column: pa.ChunkedArray) -> list[Any]:
    return [column.slice(i, 1).to_numpy()[0] for i in range(len(column))]
