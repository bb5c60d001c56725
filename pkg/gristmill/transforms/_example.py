"""Parse serialized ``tf.train.Example`` records, without TensorFlow or protobuf.

`_features` specifies the result, and `_core.ExampleParser` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill.errors import CorruptRecord
from gristmill.transforms._features import (
    FixedLen,
    Ragged,
    RaggedArray,
    as_feature,
)
from gristmill.transforms._kinds import Map

__all__ = ["ParseExample"]

# An output of `_core.ExampleParser`: its key in the result, the name of the feature,
# dtype, shape, whether the shape is fixed, and the default or None.
Output: TypeAlias = tuple[
    Any, str, np.dtype[Any], tuple[int, ...], bool, npt.NDArray[Any] | None
]

# Empty rows take memory; a damaged record must not use all of it.
_MAX_EMPTY_ROWS = 2**24


class ParseExample(Map):
    """Parse serialized ``tf.train.Example`` records to dicts of arrays.

    Args:
        features: The features to read, by name: `FixedLen`, `VarLen` or `Ragged`, or
            the ``tf.io.FixedLenFeature``, ``VarLenFeature``, ``RaggedFeature`` and
            ``FixedLenSequenceFeature`` of existing code. None reads every feature as an
            array of one dimension, int64, float32 or of bytes, in the order of the
            names; features without any kind of list are left out.
        unknown: What to do about other features of a record: "ignore" them, like
            TensorFlow, or "raise".

    A `FixedLen` of shape ``S`` becomes an array of shape ``S``, or a NumPy scalar or
    `bytes` if ``S`` is (). A `VarLen` becomes an array of shape ``(n, *S)``;
    TensorFlow would make a SparseTensor. A `Ragged` becomes a `RaggedArray`. Arrays of
    bytes have dtype object. The caller owns all arrays.

    Records are read like in protobuf: if several features have the same name, the last
    one counts, and lists that are stored in pieces are joined.

    Raises:
        TypeError: `features` is not a dict of features. Raised by the constructor.
        ValueError: An argument is out of range. Raised by the constructor.
        CorruptRecord: A record is not an Example, lacks a feature without a default, or
            has other values than requested. Raised by `map`, with the name of the
            feature.

    Example:
        >>> record = bytes.fromhex("0a0c0a0a0a01791205" "1a030a0107")
        >>> ParseExample({"y": FixedLen((), np.int32)}).map(record)["y"].item()
        7
        >>> ParseExample().map(record)
        {'y': array([7])}
    """

    def __init__(
        self,
        features: Mapping[str, Any] | None = None,
        *,
        unknown: Literal["ignore", "raise"] = "ignore",
    ) -> None:
        if unknown not in ("ignore", "raise"):
            raise ValueError(f"unknown must be 'ignore' or 'raise', got {unknown!r}.")
        if features is None:
            self._features = None
            if unknown == "raise":
                raise ValueError(
                    "unknown='raise' needs features, got None, which reads all of them."
                    " Pass the features to read."
                )
        elif isinstance(features, Mapping):
            self._features = {n: as_feature(n, f) for n, f in features.items()}
        else:
            raise TypeError(
                "features must be a dict of names and features, or None, got"
                f" {type(features).__name__}."
            )
        self._unknown = unknown
        self._compile()

    def _compile(self) -> None:
        """Create the native parsers, which are not pickled."""
        features = self._features or {}
        self._has_ragged = any(isinstance(f, Ragged) for f in features.values())
        self._parse = _core.parse_all_features
        if self._features is not None:
            self._parser = self._new_parser(features)
            self._parse = self._parser.parse
            # Blocks with sorted names use another parser, so that their arrays are
            # allocated in that order, too.
            self._sorted_parser = self._new_parser(dict(sorted(features.items())))

    def _new_parser(self, features: Mapping[str, Any]) -> _core.ExampleParser:
        outputs: list[Output] = []
        # The parts of ragged features, by the feature that has them and its dtype.
        parts: dict[tuple[str, str], Output] = {}
        for name, feature in features.items():
            if isinstance(feature, Ragged):
                for key, dtype in _parts_of(name, feature):
                    part = (key, dtype.str)
                    parts[part] = (part, key, dtype, (), False, None)
            else:
                fixed = isinstance(feature, FixedLen)
                default = feature.default_array if fixed else None
                outputs.append(
                    (name, name, feature.dtype, feature.shape, fixed, default)
                )
        return _core.ExampleParser(
            [*outputs, *parts.values()], self._unknown == "raise"
        )

    def map(self, element: Any) -> dict[str, Any]:
        """Return the dict of a record's features.

        Args:
            element: The record, as `bytes` or another buffer.

        Returns:
            The values of the features, by name.

        Raises:
            CorruptRecord: The record does not match `features`.
            TypeError: The record is not bytes.
        """
        parsed: dict[Any, Any] = self._parse(element)
        if not self._has_ragged:
            return parsed
        assert self._features is not None
        return {
            name: _make_ragged(name, feature, parsed)
            if isinstance(feature, Ragged)
            else parsed[name]
            for name, feature in self._features.items()
        }

    @property
    def decodes_blocks(self) -> bool:
        """True if `decode_block` can be called: all features are fixed numbers.

        False for a subclass that overrides `map`.
        """
        return (
            type(self).map is ParseExample.map
            and self._features is not None
            and all(
                isinstance(feature, FixedLen) and not feature.dtype.hasobject
                for feature in self._features.values()
            )
        )

    def decode_block(
        self,
        data: npt.NDArray[np.uint8],
        offsets: Int64Array,
        alloc: Alloc | None = None,
        rules: Rules = "plain",
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the stacked results of `map`, computed without the GIL.

        Args:
            data: The bytes of all records, of shape ``(n,)``.
            offsets: The bounds of the records, of shape ``(k + 1,)``: record ``i`` is
                ``data[offsets[i]:offsets[i + 1]]``.
            alloc: Allocates the arrays of the block.  None: NumPy allocates them.
            rules: "jax" sorts the names, "plain" keeps the order of `features`.

        Returns:
            Arrays of shape ``(k, *S)`` by name.

        Raises:
            CorruptRecord: A record cannot be parsed; `position` is its number.
            TypeError: `decodes_blocks` is False.
        """
        if not self.decodes_blocks:
            raise TypeError(
                "decode_block needs features that are FixedLen numbers. Check"
                " decodes_blocks before the call."
            )
        parser = self._sorted_parser if rules == "jax" else self._parser
        return parser.parse_block(data, offsets, alloc)

    def __getstate__(self) -> dict[str, Any]:
        compiled = ("_parse", "_parser", "_sorted_parser", "_has_ragged")
        return {k: v for k, v in vars(self).items() if k not in compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def __repr__(self) -> str:
        unknown = "" if self._unknown == "ignore" else f", unknown={self._unknown!r}"
        return f"ParseExample({self._features}{unknown})"


def _parts_of(name: str, feature: Ragged) -> list[tuple[str, np.dtype[Any]]]:
    """Return the names and dtypes of a ragged feature's parts, its values first."""
    rows = [(key, np.dtype(np.int64)) for key in feature.row_keys]
    return [(feature.value_key or name, feature.dtype), *rows]


def _make_ragged(name: str, feature: Ragged, parsed: dict[Any, Any]) -> Any:
    """Return the `RaggedArray` of the parsed parts, or an array."""
    values, *rows = (parsed[key, dtype.str] for key, dtype in _parts_of(name, feature))
    length = len(values)
    for partition in reversed(feature.partitions):
        try:
            if isinstance(partition, Ragged.UniformRowLength):
                if length % partition.length:
                    raise ValueError(f"its {length} values make no rows of that length")
                length //= partition.length
                if isinstance(values, np.ndarray):
                    values = values.reshape(length, partition.length, *values.shape[1:])
                    continue
                splits = np.arange(length + 1) * partition.length
            else:
                splits = _row_splits(partition, rows.pop(), length)
        except ValueError as error:
            raise CorruptRecord(
                f"feature {name!r}, divided by {partition}: {error}"
            ) from None
        length = len(splits) - 1
        values = RaggedArray(values, splits.astype(feature.row_splits_dtype))
    return values


def _row_splits(
    partition: Any, partition_values: Int64Array, length: int
) -> Int64Array:
    """Return the row splits of `length` values.

    Args:
        partition: The partition that defines the rows.
        partition_values: The values of the feature that the partition names.
        length: The number of values to divide.

    Raises:
        ValueError: The rows are invalid.
    """
    if isinstance(partition, Ragged.ValueRowIds):
        return _splits_of_ids(partition_values, length)
    zero = np.zeros(1, np.int64)
    if isinstance(partition, Ragged.RowLengths):
        if (
            partition_values.size
            and not 0 <= partition_values.min() <= partition_values.max() <= length
        ):
            raise ValueError(f"row lengths are not between 0 and its {length} values")
        splits = np.concatenate((zero, partition_values.cumsum()))
    elif isinstance(partition, Ragged.RowStarts):
        splits = np.append(partition_values, length)
    else:
        splits = partition_values if partition_values.size else zero
    if splits[0] != 0 or splits[-1] != length or (np.diff(splits) < 0).any():
        raise ValueError(f"rows do not ascend from 0 to its {length} values")
    return splits


def _splits_of_ids(ids: Int64Array, length: int) -> Int64Array:
    if len(ids) != length:
        raise ValueError(f"there are {len(ids)} row ids for its {length} values")
    if length and (ids[0] < 0 or (np.diff(ids) < 0).any()):
        raise ValueError("row ids do not ascend from 0")
    rows = int(ids[-1]) + 1 if length else 0
    if rows > length + _MAX_EMPTY_ROWS:
        raise ValueError(f"row ids leave more than {_MAX_EMPTY_ROWS} rows empty")
    return np.searchsorted(ids, np.arange(rows + 1))
