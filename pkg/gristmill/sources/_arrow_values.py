"""NumPy arrays of the values of Arrow columns; needs the pyarrow package.

docs/record-files.md lists the NumPy types.  pyarrow's `to_numpy` is used only for types
whose values it preserves.  It loses missing values of dictionaries, integers beyond
2**53 next to missing ones, and values of list views.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.sources._columns import ColumnFacts, ColumnForm, copy_array, copy_nested

__all__ = [
    "MAX_EXACT_INT",
    "check_facts",
    "facts_of",
    "form_of",
    "has_null_value",
    "is_nested",
    "is_wide",
    "to_array",
]

Objects: TypeAlias = npt.NDArray[np.object_]

# Integers up to this one, and their negatives, are exact as float64.
MAX_EXACT_INT = 1 << 53

# pyarrow decodes a dictionary with more items per row, because most items are not
# needed.
DICTIONARY_PER_ROW = 64


def to_array(
    column: pa.Array | pa.ChunkedArray, facts: ColumnFacts
) -> npt.NDArray[Any]:
    """Return the values of a column, of shape (N,).

    Only the type of the column and `facts` decide the dtype.

    Args:
        column: Some rows of the column that `facts` describe.
        facts: Facts about all rows, which must be true.

    Returns:
        An array that may be read-only, and whose items may share memory with `column`.

    Raises:
        ValueError: A struct has two fields with the same name.
    """
    if isinstance(column, pa.Array):
        return _chunk_values(column, facts)
    is_complete = _is_native(column.type) and not facts.has_nulls
    if is_complete or column.type.id not in _CONVERTERS:
        values: npt.NDArray[Any] = column.to_numpy()
        return values
    parts = [_chunk_values(chunk, facts) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts or [_object_array(())])


def facts_of(column: pa.ChunkedArray) -> ColumnFacts:
    """Return the facts that `to_array` needs, by scanning all rows of a column."""
    if is_nested(column.type) or not any(map(_has_nulls, column.chunks)):
        return ColumnFacts()
    large = is_wide(column.type) and any(map(_has_large, column.chunks))
    return ColumnFacts(has_nulls=True, has_large_ints=large)


def check_facts(column: pa.ChunkedArray, facts: ColumnFacts) -> None:
    """Raise ValueError if the facts about a column are false."""
    if is_nested(column.type) or has_null_value(column.type):
        return
    if not facts.has_nulls and column.null_count:
        raise ValueError(f"expected no missing values, found {column.null_count}")
    claims_small = facts.has_nulls and not facts.has_large_ints and is_wide(column.type)
    if claims_small and any(map(_has_large, column.chunks)):
        raise ValueError(f"expected integers up to {MAX_EXACT_INT}, found a larger one")


def is_nested(kind: pa.DataType) -> bool:
    """Return whether values of a type contain others: lists, structs, maps, unions."""
    return _logical(kind).id in _NESTED


def form_of(kind: pa.DataType, facts: ColumnFacts) -> ColumnForm:
    """Return how a column's values are converted for rows and batches."""
    kind = _logical(kind)
    if is_nested(kind):
        is_list = _is_list(kind) and not is_nested(kind.value_type)
        return ColumnForm(
            copy=copy_array if is_list else copy_nested,
            keeps_objects=_keeps_nested(kind),
            is_objects=pa.types.is_union(kind),
        )
    fits_float = pa.types.is_integer(kind) and not facts.has_large_ints
    is_exact = has_null_value(kind) or fits_float
    return ColumnForm(is_objects=facts.has_nulls and not is_exact)


def _is_list(kind: pa.DataType) -> bool:
    return kind.id in _LISTS


def _keeps_nested(kind: pa.DataType) -> bool:
    """Return whether arrays of objects among values of a type hold nested values."""
    kind = _logical(kind)
    if _is_list(kind):
        return is_nested(kind.value_type)
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return pa.types.is_union(kind) or any(map(_keeps_nested, inner))


def has_null_value(kind: pa.DataType) -> bool:
    """Return whether NaN or NaT stands for the missing values of a type."""
    kind, types = _logical(kind), pa.types
    floating = types.is_floating(kind) or types.is_date(kind)
    return bool(floating or types.is_timestamp(kind) or types.is_duration(kind))


def is_wide(kind: pa.DataType) -> bool:
    """Return whether a type has integers that are not exact as float64."""
    return _logical(kind) in (pa.int64(), pa.uint64())


def _logical(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values that a type encodes or extends."""
    while True:
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        elif not isinstance(kind, pa.BaseExtensionType):
            return kind
        elif kind.extension_name == "arrow.bool8":
            return pa.bool_()
        elif _has_own_values(kind):
            return kind
        else:
            kind = kind.storage_type


def _has_own_values(kind: pa.BaseExtensionType) -> bool:
    """Return whether values of an extension type are objects of its own."""
    scalar = kind.__arrow_ext_scalar_class__()
    return scalar.as_py is not pa.ExtensionScalar.as_py


def _is_native(kind: pa.DataType) -> bool:
    """Return whether NumPy has this type, but without missing values."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _has_nulls(array: pa.Array) -> bool:
    """Return whether a value may be missing, including encoded values."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return array.null_count > 0 or _has_nulls(array.dictionary)
    if pa.types.is_run_end_encoded(kind):
        return _has_nulls(array.values)
    if isinstance(kind, pa.BaseExtensionType):
        return _has_nulls(array.storage)
    return bool(array.null_count)


def _has_large(array: pa.Array) -> bool:
    """Return whether one of the 64-bit integers of an array is not exact as float64."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _has_large(array.dictionary)
    if pa.types.is_run_end_encoded(kind):
        return _has_large(array.values)
    if isinstance(kind, pa.BaseExtensionType):
        return _has_large(array.storage)
    ends = pc.min_max(array).as_py().values()
    return any(end is not None and abs(end) > MAX_EXACT_INT for end in ends)


def _chunk_values(array: pa.Array, facts: ColumnFacts) -> npt.NDArray[Any]:
    """Return the values of one chunk.  See `to_array`."""
    convert = _CONVERTERS.get(array.type.id)
    if convert is not None:
        return convert(array, facts)
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _inner_values(array: pa.Array) -> npt.NDArray[Any]:
    """Return the values inside other values; integers next to missing ones stay int."""
    facts = ColumnFacts(has_nulls=_has_nulls(array), has_large_ints=True)
    return _chunk_values(array, facts)


def _object_array(values: Iterable[Any], count: int = -1) -> Objects:
    # np.array would convert nested lists and arrays.
    return np.fromiter(values, np.object_, count)


def _python_values(array: pa.Array, _: ColumnFacts) -> Objects:
    return _object_array(array.to_pylist(), len(array))


def _integers(array: pa.Array, facts: ColumnFacts) -> npt.NDArray[Any]:
    if facts.has_nulls and facts.has_large_ints:
        return _python_values(array, facts)
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.astype(np.float64, copy=False) if facts.has_nulls else values


def _booleans(array: pa.Array, facts: ColumnFacts) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.astype(np.object_, copy=False) if facts.has_nulls else values


def _times(array: pa.Array, _: ColumnFacts) -> npt.NDArray[Any]:
    if array.type.unit == "ns":
        # Python's times have microseconds only.
        array = array.cast(pa.time64("us"), safe=False)
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _dictionary(array: pa.DictionaryArray, facts: ColumnFacts) -> npt.NDArray[Any]:
    is_sparse = len(array) * DICTIONARY_PER_ROW < len(array.dictionary)
    # Rows must not share nested values.
    if is_sparse or is_nested(array.type):
        return _chunk_values(array.dictionary_decode(), facts)
    values = _chunk_values(array.dictionary, facts)
    indices = array.indices.to_numpy(zero_copy_only=False)
    if array.indices.null_count:
        # These indices are floats; NaN stands for a missing one.
        indices = np.nan_to_num(indices, nan=len(values)).astype(np.int64)
        values = np.append(values, _missing_item(values.dtype))
    rows: npt.NDArray[Any] = values[indices]
    return rows


def _missing_item(dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array that contains only the missing value of a dtype."""
    value = {"f": np.nan, "M": np.datetime64("NaT"), "m": np.timedelta64("NaT")}
    return np.full(1, value.get(dtype.kind), dtype)


def _runs(array: pa.RunEndEncodedArray, facts: ColumnFacts) -> npt.NDArray[Any]:
    rows = np.arange(array.offset, array.offset + len(array))
    run_numbers = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
    if is_nested(array.type):
        return _chunk_values(array.values.take(pa.array(run_numbers)), facts)
    return _chunk_values(array.values, facts)[run_numbers]


def _extension(array: pa.ExtensionArray, facts: ColumnFacts) -> npt.NDArray[Any]:
    if array.type.extension_name == "arrow.bool8":
        return _booleans(array.storage.cast(pa.bool_()), facts)
    if _has_own_values(array.type):
        return _python_values(array, facts)
    return _chunk_values(array.storage, facts)


def _lists(array: pa.Array, _: ColumnFacts) -> Objects:
    """Return the arrays of lists.

    A list of integers or booleans is an array of objects if it lacks one of its values.
    """
    if _is_preserved_by_pyarrow(array):
        values: Objects = array.to_numpy(zero_copy_only=False)
        return values
    starts, ends, content = _bounds(array)
    inner = _inner_values(content)
    kind = _logical(array.type.value_type)
    may_overlap = array.type.id in _LIST_VIEWS
    missing_before = dtype = None
    if inner.dtype.hasobject and _is_native(kind):
        dtype = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
        missing_before = [0, *itertools.accumulate(item is None for item in inner)]

    def list_at(start: int, end: int) -> npt.NDArray[Any]:
        items = inner[start:end]
        if missing_before is not None and missing_before[start] == missing_before[end]:
            return items.astype(dtype)
        return items.copy() if may_overlap else items

    return _with_missing_rows(array, map(list_at, starts, ends))


def _is_preserved_by_pyarrow(array: pa.Array) -> bool:
    """Return whether pyarrow preserves the values when it converts these lists."""
    if array.type.id in _LIST_VIEWS:
        return False
    kind = array.type.value_type
    has_all_values = _is_native(kind) and array.values.null_count == 0
    return has_all_values or kind.id in _SAFE_IN_LISTS


def _bounds(array: pa.Array) -> tuple[list[int], list[int], pa.Array]:
    """Return the start and end of each list in an array of items, and that array."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        starts = (array.offset + np.arange(len(array))) * size
        ends = starts + size
    elif array.type.id in _LIST_VIEWS:
        starts = array.offsets.to_numpy()
        ends = starts + array.sizes.to_numpy()
    else:
        starts, ends = array.offsets.to_numpy()[:-1], array.offsets.to_numpy()[1:]
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    # The bounds of a missing list are meaningless.
    first = int(starts[valid].min(initial=len(array.values)))
    last = int(ends[valid].max(initial=first))
    content = array.values.slice(first, last - first)
    starts, ends = np.where(valid, starts - first, 0), np.where(valid, ends - first, 0)
    return starts.tolist(), ends.tolist(), content


def _with_missing_rows(array: pa.Array, values: Iterable[Any]) -> Objects:
    """Return the values of an array's rows, and None for rows that are missing."""
    if array.null_count:
        validity = array.is_valid().to_pylist()
        pairs = zip(values, validity, strict=True)
        values = (value if is_valid else None for value, is_valid in pairs)
    return _object_array(values, len(array))


def _structs(array: pa.StructArray, _: ColumnFacts) -> Objects:
    names = [field.name for field in array.type]
    if len(set(names)) != len(names):
        raise ValueError(
            f"The fields of a struct must have different names, got {names}. Rename the"
            " duplicates, because rows are dicts."
        )
    if not names:
        return _with_missing_rows(array, ({} for _ in range(len(array))))
    fields = [_items(array.field(i)) for i in range(len(names))]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True))
    return _with_missing_rows(array, rows)


def _maps(array: pa.MapArray, _: ColumnFacts) -> Objects:
    starts, ends, content = _bounds(array)
    keys, values = _items(content.field(0)), _items(content.field(1))
    pairs = list(zip(keys, values, strict=True))
    return _with_missing_rows(array, map(pairs.__getitem__, map(slice, starts, ends)))


def _items(array: pa.Array) -> list[Any]:
    """Return the values of an array for use in dicts, with None for missing ones."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType) and not _has_own_values(kind):
        return _items(array.storage)
    if kind.id in _NESTED or pa.types.is_time64(kind):
        return list(_inner_values(array))
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        values = array.to_numpy(zero_copy_only=False)
        if kind.unit == "ns":
            # Python's own types have microseconds only.
            return [None if np.isnat(value) else value for value in values]
        if pa.types.is_duration(kind) or kind.tz is None:
            return list(values.tolist())
    return list(array.to_pylist())


_ANY, _FIELD = pa.int8(), pa.field("", pa.int8())
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
# The oldest supported pyarrow has no list views.
_LIST_VIEWS = [
    getattr(pa, name)(_ANY).id
    for name in ("list_view", "large_list_view")
    if hasattr(pa, name)
]
_PLAIN_LISTS = [pa.list_(_ANY).id, pa.large_list(_ANY).id, pa.list_(_ANY, 1).id]
_LISTS = [*_PLAIN_LISTS, *_LIST_VIEWS]
_UNIONS = [pa.sparse_union([_FIELD]).id, pa.dense_union([_FIELD]).id]
# `pyarrow.types.is_nested` differs between versions.
_NESTED = [*_LISTS, *_UNIONS, pa.struct([]).id, pa.map_(_ANY, _ANY).id]
_TEXTS = "string", "large_string", "binary", "large_binary"
_SAFE_IN_LISTS = [getattr(pa, name)().id for name in ("float32", "float64", *_TEXTS)]

_Converter: TypeAlias = Callable[[Any, ColumnFacts], npt.NDArray[Any]]

# Converters of the types for which `to_numpy` may lose values, by the id of the type.
_CONVERTERS: dict[int, _Converter] = {
    **{getattr(pa, name)().id: _integers for name in _INTEGERS},
    **dict.fromkeys(_LISTS, _lists),
    pa.bool_().id: _booleans,
    pa.time64("ns").id: _times,
    pa.month_day_nano_interval().id: _python_values,
    pa.dictionary(_ANY, _ANY).id: _dictionary,
    pa.run_end_encoded(pa.int16(), _ANY).id: _runs,
    pa.struct([]).id: _structs,
    pa.map_(_ANY, _ANY).id: _maps,
    **dict.fromkeys(_UNIONS, _python_values),
    pa.fixed_shape_tensor(_ANY, (1,)).id: _extension,  # Of all extension types.
}
