"""Packs elements into rows.  The twin of ``gristmill._hot.packing``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._slow.pack_layout import PackLayout
from gristmill._slow.row_matrix import add_note, blank, length_of, make_matrix

Array = npt.NDArray[Any]


class PackedRows:
    """The rows of one batch, complete.

    Attributes:
        values: For each feature an array of shape ``(rows, length, *S)``.
        segment_ids: For each feature an int32 array of shape ``(rows, length)``, None
            where it has none.
        positions: The same.
    """

    def __init__(
        self,
        layout: PackLayout,
        in_use: int,
        values: list[Array],
        segment_ids: list[Array | None],
        positions: list[Array | None],
        metas: list[list[list[Any]]],
    ) -> None:
        self._layout = layout
        self._in_use = in_use
        self.values = values
        self.segment_ids = segment_ids
        self.positions = positions
        everything = [*values, *segment_ids, *positions, *metas]
        self._columns = [everything[column] for column in layout.columns]

    def __len__(self) -> int:
        """How many rows hold an element; they are the first."""
        return self._in_use

    def row(self, index: int) -> Any:
        """Return one row, whose arrays are views."""
        leaves: list[Any] = [column[index] for column in self._columns]  # type: ignore[index]
        if self._layout.column_keys is None:
            assert self._layout.assemble is not None
            return self._layout.assemble(leaves)
        return dict(zip(self._layout.column_keys, leaves, strict=True))


class Packer:
    """Packs elements into the rows of one batch after another.

    Args:
        layout: What the rows are made of.
    """

    def __init__(self, layout: PackLayout) -> None:
        self._layout = layout
        self._begin()

    def _begin(self) -> None:
        rows, features = self._layout.rows, len(self._layout.lengths)
        self._next_cell = np.zeros((features, rows), np.int64)
        self._used = np.zeros(rows, np.int64)
        self._sequences = np.zeros(rows, np.int64)
        self._values: list[Array] = []

    def __len__(self) -> int:
        """How many rows of the batch hold an element."""
        return int(np.count_nonzero(self._sequences))

    def add(self, element: Any) -> bool:
        """Pack an element; return False, without a change, where no row has room.

        The first element of a batch gives it its dtypes and trailing shapes.

        Raises:
            KeyError: The element lacks a feature.
            ValueError: A feature is longer than a row, or is no array or scalar.
            Exception: What NumPy raises where items do not fit in the batch's arrays.
                The batch is as it was.
        """
        leaves = leaves_of(self._layout, element)
        metas = [item_of(element, key) for key in self._layout.meta_keys]
        lengths = [
            length_of(leaf, name)
            for leaf, name in zip(leaves, self._layout.names, strict=True)
        ]
        if any(map(int.__gt__, lengths, self._layout.lengths)):
            raise too_long_error(self._layout, lengths)
        row = self._find(np.array(lengths, np.int64))
        if row is None:
            return False
        if not self._values:
            self._allocate(leaves)
        self._write(row, leaves, lengths)
        for rows, meta in zip(self._metas, metas, strict=True):
            rows[row].append(meta)
        return True

    def finish(self) -> PackedRows:
        """Return the batch and begin another.

        REQUIRES: an element was added.
        """
        packed = PackedRows(
            self._layout,
            len(self),
            self._values,
            self._segment_ids,
            self._positions,
            self._metas,
        )
        self._begin()
        return packed

    def fill(self, parent: Any) -> tuple[Any, Any]:
        """Pack elements of an iterator until one does not fit or there are no more.

        Returns:
            The state before that element, or the end, and the element in a tuple; None
            for the end.

        Raises:
            Exception: What the iterator or `add` raises; that element is dropped, and
                another call goes on with the next.
        """
        while True:
            state = parent.get_state()
            try:
                element = next(parent)
            except StopIteration:
                return state, None
            if not self.add(element):
                return state, (element,)

    def _find(self, lengths: Array) -> int | None:
        capacities = np.array(self._layout.lengths, np.int64)
        fits = (self._next_cell + lengths[:, None] <= capacities[:, None]).all(axis=0)
        if self._layout.max_sequences:
            closed = self._sequences >= self._layout.max_sequences
            if self._layout.best_fit and not lengths.any():
                # Grain lets elements without any cell into a row without any.
                closed &= self._used > 0
            fits &= ~closed
        if not fits.any():
            return None
        score = self._used if self._layout.best_fit else np.zeros_like(self._used)
        return int(np.argmax(np.where(fits, score, -1)))

    def _allocate(self, leaves: list[Any]) -> None:
        layout = self._layout
        self._values = [
            make_matrix((layout.rows, length), leaf, padding)
            for length, leaf, padding in zip(
                layout.lengths, leaves, layout.paddings, strict=True
            )
        ]
        self._segment_ids, self._positions = (
            [
                np.zeros((layout.rows, length), np.int32) if numbered else None
                for length, numbered in zip(
                    layout.lengths, layout.numbered, strict=True
                )
            ]
            for _ in range(2)
        )
        self._metas: list[list[list[Any]]] = [
            [[] for _ in range(layout.rows)] for _ in layout.meta_keys
        ]

    def _write(self, row: int, leaves: list[Any], lengths: list[int]) -> None:
        begins = [int(begin) for begin in self._next_cell[:, row]]
        for feature, leaf in enumerate(leaves):
            begin, end = begins[feature], begins[feature] + lengths[feature]
            try:
                self._values[feature][row, begin:end] = leaf
            except BaseException as error:
                for done in range(feature + 1):
                    blank(
                        self._values[done][
                            row, begins[done] : begins[done] + lengths[done]
                        ],
                        self._layout.paddings[done],
                    )
                add_note(error, self._layout.names[feature], self._values[feature])
                raise
        self._sequences[row] += 1
        for feature, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
            segment_ids, positions = (
                self._segment_ids[feature],
                self._positions[feature],
            )
            if segment_ids is not None and positions is not None:
                segment_ids[row, begin : begin + length] = self._sequences[row]
                positions[row, begin : begin + length] = np.arange(length)
            alignment = self._layout.alignments[feature]
            aligned = -(-(begin + length) // alignment) * alignment
            self._next_cell[feature, row] = aligned
            self._used[row] += aligned - begin


def leaves_of(layout: PackLayout, element: Any) -> list[Any]:
    """Return the features of an element.

    Raises:
        KeyError: It lacks one.
    """
    if layout.keys is None:
        assert layout.leaves_of is not None
        return layout.leaves_of(element)
    return [item_of(element, key) for key in layout.keys]


def item_of(element: Any, key: Any) -> Any:
    """Return ``element[key]``.

    Raises:
        KeyError: It has no such key.
    """
    try:
        return element[key]
    except KeyError:
        raise KeyError(
            f"{key!r} is to be packed, but the element has only {list(element)!r}."
            " Add it in a map before packing, or take it out of length_struct and"
            " meta_features."
        ) from None


def too_long_error(layout: PackLayout, lengths: Sequence[int]) -> ValueError:
    """Return the error about features that are longer than a row, in Grain's words."""
    details = ", ".join(
        f"({path}, {length}, {capacity})"
        for path, length, capacity in zip(
            layout.paths, lengths, layout.lengths, strict=True
        )
        if length > capacity
    )
    return ValueError(
        f"{layout.too_long} Exceeds: (feature_path, feature_length, max_length) ="
        f" [{details}]. Cut longer elements in a map before packing, or raise"
        " length_struct."
    )
