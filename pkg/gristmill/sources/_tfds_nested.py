"""Datasets inside the elements of a TFDS dataset, such as the steps of an episode."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gristmill.sources._tfds_images import Decode
from gristmill.sources._tfds_leaf import FLAT, LENGTHS, Leaf, check_bytes
from gristmill.transforms._features import VarLen

__all__ = ["NestedLeaf", "NestedSource", "nest"]

Names = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class NestedLeaf:
    """A feature that holds a dataset.

    Attributes:
        names: Path of the feature in an element.
        leaves: The features of its elements.  Their `lengths` do not include the
            dataset itself.
        length: The number of elements, or None if it may vary.
    """

    names: Names
    leaves: tuple[Leaf, ...]
    length: int | None = None

    def parts(self) -> dict[str, Any]:
        """Return the parts to request from a record."""
        return {
            key: VarLen(dtype)
            for leaf in self.leaves
            for key, dtype in _columns_of(leaf).items()
        }

    def decoder(self) -> list[Decode | None]:
        """Return a function from bytes to an array, or None, for each leaf."""
        return [leaf.decoder() for leaf in self.leaves]

    def value(
        self, parsed: Mapping[str, Any], decode: Sequence[Decode | None]
    ) -> NestedSource:
        """Return the dataset in a parsed record; see `Leaf.value`."""
        columns = []
        for leaf, decode_one in zip(self.leaves, decode, strict=True):
            with check_bytes(leaf.key):
                columns.append(Column(leaf, decode_one, parsed))
        with check_bytes("/".join(self.names)):
            return NestedSource(columns, len(self.names), self.length)


class NestedSource(Sequence[Any]):
    """The elements of a dataset that is inside an element, decoded when they are read.

    Args:
        columns: The values of each feature.
        depth: The number of names in the path of the dataset itself.
        length: The required number of elements, or None for any number.

    Raises:
        ValueError: The features do not have equally many values.
    """

    def __init__(
        self, columns: Sequence[Column], depth: int, length: int | None
    ) -> None:
        self._columns = columns
        self._depth = depth
        lengths = {len(column) for column in columns}
        if len(lengths) != 1 or not {length} <= {None, *lengths}:
            expected = "equally many" if length is None else length
            raise ValueError(f"expected {expected} elements, found {sorted(lengths)}")
        (self._length,) = lengths

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        number = range(self._length)[operator.index(index)]
        values = [
            (column.names[self._depth :], column.at(number)) for column in self._columns
        ]
        (names, value), *others = values
        # Elements that are not dicts have one feature, without a name of its own.
        return value if not (names or others) else nest(values)

    def __repr__(self) -> str:
        return f"NestedSource(length={self._length})"


class Column:
    """The values of one feature in all elements of a dataset.

    `_values` has the values of all elements, one after the other.  If they are in
    sequences, `_splits` has the bounds of the rows at each level, the outermost first.

    Raises:
        ValueError: The record's values and lengths do not match the leaf.
    """

    def __init__(
        self, leaf: Leaf, decode: Decode | None, parsed: Mapping[str, Any]
    ) -> None:
        self.names = leaf.names
        self._key = leaf.key
        self._decode = decode
        flat_values, *lengths = (parsed[key] for key in _columns_of(leaf))
        self._values = flat_values.reshape(
            -1, *(leaf.extents() if decode is None else ())
        )
        for row_lengths, length in zip(lengths, leaf.lengths, strict=True):
            if length is not None and (row_lengths != length).any():
                raise ValueError(f"expected sequences of {length}, found {row_lengths}")
        self._splits = [
            np.concatenate([[0], np.cumsum(row_lengths)]) for row_lengths in lengths
        ]
        # Where the last row of each level must end: at the last row of the next level.
        ends = [len(splits) - 1 for splits in self._splits[1:]] + [len(self._values)]
        if [int(splits[-1]) for splits in self._splits] != ends[: len(self._splits)]:
            found_ends = [int(splits[-1]) for splits in self._splits]
            raise ValueError(f"expected rows of {ends} values, found {found_ends}")

    def __len__(self) -> int:
        return len(self._splits[0]) - 1 if self._splits else len(self._values)

    def at(self, number: int) -> Any:
        """Return the value of one element."""
        with check_bytes(self._key):
            if not self._splits:
                value = self._values[number]
                return value if self._decode is None else self._decode(value)
            outermost, *inner = self._splits
            first, last = outermost[number : number + 2]
            row = _rows(self._values, inner, first, last)
            return list(row) if self._decode is None else [*map(self._decode, row)]


def _columns_of(leaf: Leaf) -> dict[str, Any]:
    """Return the dtypes of a leaf's values and of the lengths of its rows, by key."""
    stored = leaf.dtype if leaf.encoding == "none" else np.dtype(object)
    if not leaf.lengths:
        return {leaf.key: stored}
    rows = range(len(leaf.lengths))
    lengths = {f"{leaf.key}/{LENGTHS}{i}": np.dtype(np.int64) for i in rows}
    return {f"{leaf.key}/{FLAT}": stored} | lengths


def _rows(values: Any, splits: list[Any], first: int, last: int) -> Any:
    """Return the rows [first, last) of values that are in sequences."""
    if not splits:
        return values[first:last]
    bounds = splits[0][first : last + 1]
    return [_rows(values, splits[1:], *pair) for pair in itertools.pairwise(bounds)]


def nest(values: Iterable[tuple[Names, Any]]) -> dict[str, Any]:
    """Return nested dicts with each value at the path of its names."""
    root: dict[str, Any] = {}
    for names, value in values:
        parent = root
        for name in names[:-1]:
            parent = parent.setdefault(name, {})
        parent[names[-1]] = value
    return root
