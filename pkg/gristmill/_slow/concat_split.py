"""Lays elements end to end and cuts rows.  Twin of ``gristmill._hot.concat_split``."""

from __future__ import annotations

import collections.abc
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._slow.pack_layout import SplitLayout
from gristmill._slow.row_matrix import add_note, blank, make_matrix

Slice = tuple[int, int]


class Splitter:
    """Lays elements end to end and cuts rows.

    Args:
        layout: What the rows are made of.

    Attributes:
        limited_by: The last feature that ended a row because it is never cut.
    """

    def __init__(self, layout: SplitLayout) -> None:
        self._layout = layout
        self.limited_by: Any = None
        self.clear()

    def clear(self) -> None:
        """Forget all elements."""
        self._rest: list[npt.NDArray[Any]] | None = None
        self._rest_state: Any = None
        self._is_cut = False
        self._ranges: list[Slice] = []
        self._full: list[dict[Any, Any]] = []
        self._begin_row()

    def rest(self) -> tuple[Any, list[Slice] | None] | None:
        """Return what opens the next row, None if nothing does.

        Returns:
            The state before that element, and the cells left of each feature, or None
            for all.
        """
        if self._rest is None:
            return None
        return self._rest_state, list(self._ranges) if self._is_cut else None

    def restore(self, element: Any, state: Any, ranges: list[Slice | None]) -> None:
        """Let what is left of an element open the next row.

        Args:
            element: The whole of it.
            state: The state before it.
            ranges: The cells left of each feature; None for all.

        Raises:
            ValueError: The element is not as the layout says, or has fewer cells.
        """
        leaves = leaves_of(self._layout, element)
        self._ranges = [
            range_of(key, leaf, left)
            for key, leaf, left in zip(self._layout.keys, leaves, ranges, strict=True)
        ]
        self._rest, self._rest_state, self._is_cut = leaves, state, True

    def fill(self, parent: Any) -> tuple[list[dict[Any, Any]], bool]:
        """Take elements of an iterator until a row is complete or there are no more.

        Returns:
            The rows, and whether there are no more elements.

        Raises:
            Exception: What the iterator raises, or an element that is not as the
                layout says; that element is dropped, and another call goes on with
                the next.
        """
        ended = False
        while self._rest is None or self._pack_rest():
            self._rest = None
            state = parent.get_state()
            try:
                element = next(parent)
            except StopIteration:
                ended = True
                break
            self._pull(element, state)
        rows = [self._row()] if self._segment else []
        rows += self._full
        self._full = []
        self._begin_row()
        return rows, ended

    def _begin_row(self) -> None:
        self._used = [0] * len(self._layout.keys)
        self._segment = 0
        self._values: list[npt.NDArray[Any]] = []
        self._numbers = np.zeros((2, len(self._used), 0), np.int32)

    def _pull(self, element: Any, state: Any) -> None:
        leaves = leaves_of(self._layout, element)
        sizes = [size_of(leaf) for leaf in leaves]
        if not self._layout.split_full_rows and self._is_full_row(sizes):
            row = self._used, self._segment, self._values, self._numbers
            self._begin_row()
            try:
                self._write(leaves, [(0, size) for size in sizes])
                self._full.append(self._row())
            finally:
                self._used, self._segment, self._values, self._numbers = row
            return
        self._rest, self._rest_state = leaves, state
        self._ranges, self._is_cut = [(0, size) for size in sizes], False

    def _is_full_row(self, sizes: list[int]) -> bool:
        pairs = list(zip(sizes, self._layout.lengths, strict=True))
        return all(size <= length for size, length in pairs) and any(
            size == length for size, length in pairs
        )

    def _pack_rest(self) -> bool:
        """Put as much as fits into the row; return whether that is all."""
        leaves = self._rest
        assert leaves is not None
        # A scalar is there again in each part of its element.
        now = [
            range_ if leaf.ndim else (0, 1)
            for leaf, range_ in zip(leaves, self._ranges, strict=True)
        ]
        sizes = [end - begin for begin, end in now]
        rooms = [
            length - used
            for length, used in zip(self._layout.lengths, self._used, strict=True)
        ]
        for feature, whole in enumerate(self._layout.whole):
            if whole and sizes[feature] > rooms[feature]:
                self.limited_by = self._layout.keys[feature]
                if not self._segment:
                    self._rest = None
                    raise whole_error(
                        self._layout.keys[feature],
                        sizes[feature],
                        self._layout.lengths[feature],
                    )
                return False
        counts = [min(size, room) for size, room in zip(sizes, rooms, strict=True)]
        cuttable = [not whole for whole in self._layout.whole]
        is_cut = counts != sizes
        if is_cut and not any(
            count for count, may in zip(counts, cuttable, strict=True) if may
        ):
            return False
        taken = [
            (begin, begin + count)
            for (begin, _), count in zip(now, counts, strict=True)
        ]
        try:
            self._write(leaves, taken)
        except BaseException:
            self._rest = None
            raise
        if is_cut:
            self._is_cut = True
            self._ranges = [
                (last, end) if may else (begin, end)
                for (begin, end), (_, last), may in zip(
                    now, taken, cuttable, strict=True
                )
            ]
        return not is_cut

    def _write(self, leaves: list[npt.NDArray[Any]], taken: list[Slice]) -> None:
        layout = self._layout
        if not self._segment:
            self._values = [
                make_matrix((1, length), leaf, None)
                for length, leaf in zip(layout.lengths, leaves, strict=True)
            ]
            self._numbers = np.zeros((2, len(leaves), max(layout.lengths)), np.int32)
        for feature, (leaf, (begin, end)) in enumerate(zip(leaves, taken, strict=True)):
            used = self._used[feature]
            cells = self._values[feature][0, used : used + end - begin]
            try:
                cells[...] = leaf[begin:end] if leaf.ndim else leaf
                if layout.bos[feature] and used < layout.lengths[feature]:
                    # As in Grain, also where the segment has no cell.
                    self._values[feature][0, used] = layout.bos_token
            except BaseException as error:
                for done in range(feature + 1):
                    blank(self._values[done][0, self._used[done] :], None)
                add_note(error, f"[{layout.keys[feature]!r}]", self._values[feature])
                raise
        self._segment += 1
        for feature, (begin, end) in enumerate(taken):
            used = self._used[feature]
            last = used + end - begin
            self._numbers[0, feature, used:last] = self._segment
            self._numbers[1, feature, used:last] = np.arange(end - begin)
            self._used[feature] = last

    def _row(self) -> dict[Any, Any]:
        everything = [matrix[0] for matrix in self._values]
        for numbers in self._numbers:
            everything += [
                row[:length]
                for row, length in zip(numbers, self._layout.lengths, strict=True)
            ]
        return {
            key: everything[column]
            for key, column in zip(
                self._layout.column_keys, self._layout.columns, strict=True
            )
        }


def leaves_of(layout: SplitLayout, element: Any) -> list[npt.NDArray[Any]]:
    """Return the features of an element as arrays.

    Raises:
        ValueError: It is no mapping of exactly the keys that are packed.
    """
    if not isinstance(element, collections.abc.Mapping):
        raise ValueError(
            "Parent elements must be unnested dictionaries but got"
            f" {type(element).__name__}. Make them so in a map before packing."
        )
    if set(element) != set(layout.keys):
        found = {key: spec_of(value) for key, value in element.items()}
        lengths = dict(zip(layout.keys, layout.lengths, strict=True))
        raise ValueError(
            f"Parent element has structure {found} but target sequence length is"
            f" {lengths}. There must be a sequence length for each feature. Drop"
            " features that are not to be packed in a map before packing."
        )
    return [np.asarray(element[key]) for key in layout.keys]


def spec_of(value: Any) -> str:
    """Return what a feature is, in Grain's words."""
    kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
    return f"{kind}{list(np.shape(value))}"


def size_of(leaf: npt.NDArray[Any]) -> int:
    """Return how many cells a feature has: its first extent, 1 for a scalar."""
    return leaf.shape[0] if leaf.ndim else 1


def whole_error(key: Any, size: int, length: int) -> ValueError:
    """Return the error about a feature that fits in no row."""
    return ValueError(
        f"Meta feature {key!r} of an element has length {size}, but a row has only"
        f" {length} cells for it, and meta features are never cut. Raise its length in"
        " length_struct, or cut it in a map before packing."
    )


def range_of(key: Any, leaf: npt.NDArray[Any], left: Slice | None) -> Slice:
    """Return the cells left of a feature; None stands for all.

    Raises:
        ValueError: The feature does not have them.
    """
    size = size_of(leaf)
    if left is None:
        return 0, size
    begin, end = left
    if not 0 <= begin <= end <= size:
        raise ValueError(
            f"The state has cells {begin} to {end} of feature {key!r} left over, but"
            f" the element there has {size}. It was made by another pipeline, or the"
            " data have changed."
        )
    return begin, end
