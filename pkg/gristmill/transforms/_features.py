"""Specifications of the features of a ``tf.train.Example``.

TensorFlow's own ``tf.io.FixedLenFeature`` and similar classes have the same meaning.
They are recognized by their fields, so that TensorFlow is not needed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Feature", "FixedLen", "Ragged", "RaggedArray", "VarLen", "as_feature"]

_BYTES_TYPES = (bytes, np.bytes_, object, np.object_, "bytes", "object", "string")
_OBJECT = np.dtype(object)


def _dtype_of(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a specification; object stands for bytes."""
    dtype = getattr(dtype, "as_numpy_dtype", dtype)  # For TensorFlow's dtypes.
    if dtype is None:
        raise TypeError("dtype must be a type of NumPy or bytes, got None.")
    if any(dtype is string or dtype == string for string in _BYTES_TYPES):
        return _OBJECT
    result: np.dtype[Any] = np.dtype(dtype)
    if result == _OBJECT:
        return _OBJECT
    is_supported = result.kind in "iub" or (result.kind == "f" and result.itemsize <= 8)
    if not is_supported or not result.isnative:
        raise TypeError(
            "dtype must be bytes, bool, or an integer or float type of NumPy of at most"
            f" 64 bits, got {dtype!r}."
        )
    return result


def _name_of(dtype: np.dtype[Any]) -> str:
    return "bytes" if dtype == _OBJECT else repr(dtype.name)


def _shape_of(shape: Any) -> tuple[int, ...]:
    extents = shape if isinstance(shape, Iterable) else (shape,)
    known_shape = tuple(-1 if extent is None else int(extent) for extent in extents)
    if any(extent < 0 for extent in known_shape):
        raise ValueError(
            f"shape must have only known extents, got {tuple(extents)}. For any number"
            " of rows, use VarLen(dtype, shape_of_a_row)."
        )
    return known_shape


def _as_tuples(items: Any) -> Any:
    """Return nested lists as tuples, which can be compared and printed."""
    return tuple(map(_as_tuples, items)) if isinstance(items, list) else items


@dataclasses.dataclass(frozen=True, repr=False)
class FixedLen:
    """A feature that has the same shape in each record.

    Args:
        shape: Shape ``S`` of the array; ``()`` gives a scalar.
        dtype: The type of the result: any integer type or bool for int64 values, any
            float type for floats, all of at most 64 bits; or `bytes`.
        default: The value for records that lack the feature: an array of shape ``S``,
            or a scalar that fills it. With None a missing feature is an error.

    Raises:
        TypeError: Features cannot be read as `dtype`.
        ValueError: `default` does not have the shape.

    Example:
        >>> FixedLen((), np.int64, default=-1)
        FixedLen((), 'int64', default=-1)
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    default: Any = None

    def __init__(self, shape: Any, dtype: Any, default: Any = None) -> None:
        object.__setattr__(self, "shape", _shape_of(shape))
        object.__setattr__(self, "dtype", _dtype_of(dtype))
        if default is not None:
            default = _as_tuples(
                _fill_default(default, self.shape, self.dtype).tolist()
            )
        object.__setattr__(self, "default", default)

    @property
    def default_array(self) -> npt.NDArray[Any] | None:
        """The default as a new array of the feature's shape and dtype."""
        if self.default is None:
            return None
        return _fill_default(self.default, self.shape, self.dtype)

    def __repr__(self) -> str:
        default = "" if self.default is None else f", default={self.default!r}"
        return f"FixedLen({self.shape}, {_name_of(self.dtype)}{default})"


def _fill_default(
    default: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    value = np.asarray(default, dtype)
    if value.size != 1 and value.size != math.prod(shape):
        raise ValueError(
            f"default must have the feature's shape, {shape}, or one value, got shape"
            f" {value.shape}."
        )
    if dtype == _OBJECT:
        value = np.asarray(np.frompyfunc(_as_bytes, 1, 1)(value), dtype)
    if value.size == math.prod(shape):
        return value.reshape(shape).copy()
    filled = np.empty(shape, dtype)
    filled.fill(value.item())
    return filled


def _as_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if not isinstance(item, bytes):
        raise TypeError(
            f"default of a feature of bytes must be bytes, got {type(item).__name__}."
        )
    return bytes(item)


@dataclasses.dataclass(frozen=True, repr=False)
class VarLen:
    """A feature with any number of values, or any number of rows.

    Args:
        dtype: As for `FixedLen`.
        shape: Shape ``S`` of a row; ``()`` for single values.

    It becomes an array of shape ``(n, *S)``; ``n`` is 0 if the record lacks it.

    Raises:
        TypeError: Features cannot be read as `dtype`.

    Example:
        >>> VarLen(np.float32, shape=4)
        VarLen('float32', shape=(4,))
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    def __init__(self, dtype: Any, shape: Any = ()) -> None:
        object.__setattr__(self, "dtype", _dtype_of(dtype))
        object.__setattr__(self, "shape", _shape_of(shape))
        if 0 in self.shape:
            raise ValueError(f"shape must not contain 0, got {self.shape}.")

    def __repr__(self) -> str:
        shape = f", shape={self.shape}" if self.shape else ""
        return f"VarLen({_name_of(self.dtype)}{shape})"


class RaggedArray(NamedTuple):
    """Rows of different lengths.

    Row ``i`` is ``values[row_splits[i]:row_splits[i + 1]]``.

    Attributes:
        values: All rows, one after the other: an array of shape ``(n, ...)``, or a
            `RaggedArray` of ``n`` rows if rows consist of rows.
        row_splits: The bounds of the rows in `values`, of shape ``(rows + 1,)``.

    Example:
        >>> rows = RaggedArray(np.array([7, 8, 9]), np.array([0, 2, 3]))
        >>> [row.tolist() for row in np.split(rows.values, rows.row_splits[1:-1])]
        [[7, 8], [9]]
    """

    values: Any
    row_splits: npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, repr=False)
class Ragged:
    """A feature of rows of different lengths, which other features define.

    Args:
        dtype: The type of the values, as for `FixedLen`.
        value_key: The feature that has the values. None is the name that this one
            has in the dict of features.
        partitions: How the values are divided into rows, the outermost division first:
            ``Ragged.RowLengths(key)``, ``RowSplits(key)``, ``RowStarts(key)`` and
            ``ValueRowIds(key)`` name the int64 feature that defines the rows;
            ``UniformRowLength(length)`` makes rows of one length. A feature that
            is not divided becomes an array.
        row_splits_dtype: dtype of `RaggedArray.row_splits`, int64 or int32.

    It becomes a `RaggedArray`, or an array of shape ``(rows, length)`` if only a
    uniform length divides it. Divisions are always checked.

    Raises:
        TypeError: Features cannot be read as `dtype`, or a partition has a wrong type.
        ValueError: A uniform row length is less than 1.

    Example:
        >>> Ragged(np.int64, "tokens", [Ragged.RowLengths("lengths")])
        Ragged('int64', 'tokens', [RowLengths(key='lengths')])
    """

    class RowSplits(NamedTuple):
        """Row ``i`` begins at value ``splits[i]`` and ends before ``splits[i + 1]``."""

        key: str

    class RowLengths(NamedTuple):
        """Row ``i`` has ``lengths[i]`` values."""

        key: str

    class RowStarts(NamedTuple):
        """Row ``i`` begins at value ``starts[i]`` and ends before the next row."""

        key: str

    class ValueRowIds(NamedTuple):
        """Value ``j`` belongs to row ``ids[j]``; ids ascend."""

        key: str

    class UniformRowLength(NamedTuple):
        """Each row has `length` values."""

        length: int

    dtype: np.dtype[Any]
    value_key: str | None
    partitions: tuple[Any, ...]
    row_splits_dtype: np.dtype[Any]

    def __init__(
        self,
        dtype: Any,
        value_key: str | None = None,
        partitions: Sequence[Any] = (),
        row_splits_dtype: Any = np.int64,
    ) -> None:
        splits = _dtype_of(row_splits_dtype)
        if splits not in (np.dtype(np.int64), np.dtype(np.int32)):
            raise TypeError(f"row_splits_dtype must be int64 or int32, got {splits}.")
        object.__setattr__(self, "dtype", _dtype_of(dtype))
        object.__setattr__(self, "value_key", value_key)
        object.__setattr__(self, "partitions", tuple(map(_as_partition, partitions)))
        object.__setattr__(self, "row_splits_dtype", splits)

    @property
    def row_keys(self) -> list[str]:
        """The names of the features that define the rows."""
        return [part.key for part in self.partitions if hasattr(part, "key")]

    def __repr__(self) -> str:
        parts = [_name_of(self.dtype), repr(self.value_key), repr([*self.partitions])]
        if self.row_splits_dtype != np.int64:
            parts.append(f"row_splits_dtype={_name_of(self.row_splits_dtype)}")
        return f"Ragged({', '.join(parts)})"


Feature: TypeAlias = FixedLen | VarLen | Ragged


def _as_partition(value: Any) -> Any:
    """Convert a partition, which may be TensorFlow's, to one of these classes."""
    kind = getattr(Ragged, type(value).__name__, None)
    if kind is None or not isinstance(value, tuple):
        raise TypeError(
            "A partition must be a Ragged.RowLengths, RowSplits, RowStarts, ValueRowIds"
            f" or UniformRowLength, got {type(value).__name__}."
        )
    if kind is Ragged.UniformRowLength:
        length = int(value[0])
        if length < 1:
            raise ValueError(
                f"length of a UniformRowLength must be at least 1, got {length}."
            )
        return kind(length)
    return kind(str(value[0]))


def as_feature(name: str, value: Any) -> Feature:
    """Convert a specification, which may be a ``tf.io.*Feature``, to a `Feature`."""
    if isinstance(value, FixedLen | VarLen | Ragged):
        return value
    fields = getattr(value, "_fields", ())
    try:
        if fields == ("shape", "dtype", "default_value"):
            return FixedLen(value.shape, value.dtype, value.default_value)
        if fields == ("dtype",):
            return VarLen(value.dtype)
        if fields == ("shape", "dtype", "allow_missing", "default_value"):
            # The default only fills batches, and this parser reads single records.
            if not value.allow_missing:
                raise ValueError("allow_missing must be True, got False.")
            return VarLen(value.dtype, value.shape)
        if "partitions" in fields and "row_splits_dtype" in fields:
            return Ragged(
                value.dtype, value.value_key, value.partitions, value.row_splits_dtype
            )
    except (TypeError, ValueError) as error:
        raise type(error)(f"features[{name!r}]: {error}") from error
    hint = ""
    if "index_key" in fields:
        hint = " Read its indices and values as two VarLen features."
    raise TypeError(
        f"features[{name!r}] must be a FixedLen, VarLen or Ragged, or TensorFlow's"
        f" feature of that kind, got {type(value).__name__}.{hint}"
    )
