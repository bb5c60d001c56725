"""Tables of pyarrow as data sources; needs the pyarrow package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gristmill.sources._columns import as_rows

__all__ = ["ArrowSource", "as_arrays"]


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
        if len(chunks) != 1:
            return None
        column = chunks[0]
    values, shape = column, [len(column)]
    while pa.types.is_fixed_size_list(values.type) and not values.null_count:
        shape.append(values.type.list_size)
        values = values.flatten()
    try:
        view: npt.NDArray[Any] = values.to_numpy(zero_copy_only=True)
    except (pa.ArrowInvalid, NotImplementedError):
        return None
    return None if view.dtype.hasobject else view.reshape(shape)


class ArrowSource:
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
        self._dtypes = [_dtype_of(column) for column in self._table.columns]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} out of range for {len(self)}")
        return self._rows(self._table.slice(index, 1))[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return several rows, taken out of each column at once."""
        return self._rows(self._table.take(pa.array(indices, pa.int64())))

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name!r}: {f.type}" for f in self._table.schema)
        return f"ArrowSource(rows={len(self)}, columns={{{fields}}})"

    def _rows(self, table: pa.Table) -> list[dict[str, Any]]:
        values = [
            _each_alone(column) if dtype is None else _together(column, dtype)
            for column, dtype in zip(table.columns, self._dtypes, strict=True)
        ]
        return as_rows(self._names, values)


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
