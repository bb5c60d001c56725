"""A dataset that concatenates sequences and splits them into rows of fixed length."""

from __future__ import annotations

import collections
import enum
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from gristmill._base import log
from gristmill._base.argument_checks import check_flag, check_instance
from gristmill._dataset.model import states
from gristmill._dataset.model.error_notes import note_outermost
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.nodes.pack_layout import at_least
from gristmill._hot import concat_split
from gristmill._hot.layouts import SplitLayout
from gristmill.errors import StateMismatch

# In a state, the range of a feature that has no cells left.
NOTHING_LEFT = (-1, -1)
# For each feature, the cells of a split element that are left: (begin, end).
Slices: TypeAlias = dict[Any, tuple[int, int]]


class BOSHandling(enum.Enum):
    """How packing treats the token that begins a sequence.

    Attributes:
        DO_NOTHING: Sequences are not changed.
        REPLACE_FIRST_TOKEN_WITH_BOS: The first token of each sequence in a row, and of
            the rest of a split sequence, is replaced by the BOS token.

    Example:
        >>> ds = gristmill.MapDataset.source([{"x": np.arange(4, 9)}]).to_iter_dataset()
        >>> packed = gristmill.experimental.ConcatThenSplitIterDataset(
        ...     ds, length_struct={"x": 3}, bos_features={"x"}, bos_token_id=1,
        ...     bos_handling=BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS,
        ... )
        >>> [row["x"].tolist() for row in packed]
        [[1, 5, 6], [1, 8, 0]]
    """

    DO_NOTHING = enum.auto()
    REPLACE_FIRST_TOKEN_WITH_BOS = enum.auto()


class ConcatThenSplitIterDataset(IterDataset[Any]):
    """Concatenate elements and split them into rows of fixed length.

    Elements are flat dicts of scalars and of arrays, which are concatenated along the
    first axis, with exactly the features of `length_struct`.  Elements are added to a
    row until one of its features is full.  The last element is split there, and the
    next row begins with the rest of it.  Other features of the row are padded with
    zeros.  A scalar counts as one cell, and is repeated in each part of its element.

    A row is a dict; for a feature ``k`` of shape ``(n, *S)`` it has

    - ``k``: shape ``(length, *S)`` and the dtype of the row's first element;
    - ``k_segment_ids``: int32, shape ``(length,)``: 1 for the cells of the row's first
      element or part of one, 2 for those of its second, ..., 0 for padding;
    - ``k_positions``: int32, shape ``(length,)``: 0, 1, 2, ... in each of them.

    Args:
        parent: The dataset of the elements.
        length_struct: The number of cells of each feature in a row, at least 1.
        meta_features: Features that are never split and get no segment ids and
            positions. Each part of an element has them. If one does not fit, the row
            ends.
        split_full_length_features: If False, an element that fills a row by itself (a
            feature has the length of a row, and none is longer) is not split, and
            becomes a row after the one that is being filled.
        bos_handling: How to treat the token that begins a sequence.
        bos_features: The features to which `bos_handling` applies.
        bos_token_id: The token that replaces it.

    Raises:
        TypeError: A length is not an int.
        ValueError: An argument is out of range, or the BOS arguments contradict each
            other. At iteration: an element has other features, or one that is never
            split is longer than a row. The element is dropped, and ``next`` continues
            after it.

    Example:
        >>> ds = gristmill.MapDataset.source([{"x": np.arange(n)} for n in (3, 6)])
        >>> packed = gristmill.experimental.ConcatThenSplitIterDataset(
        ...     ds.to_iter_dataset(), length_struct={"x": 5}
        ... )
        >>> [row["x"].tolist() for row in packed]
        [[0, 1, 2, 0, 1], [2, 3, 4, 5, 0]]
    """

    _KIND = "batch"

    def __init__(
        self,
        parent: IterDataset[Any],
        *,
        length_struct: Mapping[str, int],
        meta_features: Collection[str] = (),
        split_full_length_features: bool = True,
        bos_handling: BOSHandling = BOSHandling.DO_NOTHING,
        bos_features: Collection[str] = (),
        bos_token_id: int | None = None,
    ) -> None:
        super().__init__(parent)
        check_flag("split_full_length_features", split_full_length_features)
        check_instance("length_struct", length_struct, Mapping, "a dict of ints")
        check_instance("bos_handling", bos_handling, BOSHandling, "a BOSHandling")
        self._length_struct = length_struct
        self._bos_handling = bos_handling
        _check_bos(bos_handling, bos_features, bos_token_id, meta_features)
        for name in (*meta_features, *bos_features):
            if name not in length_struct:
                log.warning(
                    "ConcatThenSplitIterDataset: %r is in meta_features or bos_features"
                    " but not in length_struct, so it has no effect. Add it to"
                    " length_struct, or remove it.",
                    name,
                )
        keys = tuple(length_struct)
        columns = columns_of(keys, meta_features)
        replaces = bos_handling is BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS
        self._layout = SplitLayout(
            keys=keys,
            lengths=tuple(
                at_least(1, length, f"length_struct[{key!r}]")
                for key, length in length_struct.items()
            ),
            whole=tuple(key in meta_features for key in keys),
            bos=tuple(replaces and key in bos_features for key in keys),
            bos_token=bos_token_id,
            split_full_rows=split_full_length_features,
            columns=tuple(columns.values()),
            column_keys=tuple(columns),
        )

    def __iter__(self) -> DatasetIterator[Any]:
        return ConcatThenSplitDatasetIterator(self)

    @property
    def span_feature(self) -> Any:
        """The first feature that is split, or None: its cells count as tokens."""
        features = zip(self._layout.keys, self._layout.whole, strict=True)
        return next((key for key, whole in features if not whole), None)


def _check_slices(
    iterator: ConcatThenSplitDatasetIterator, slices: Any, name: str
) -> None:
    states.check_keys(iterator, slices, list(iterator._nothing_left))
    for key, part in slices.items():
        label = f"{name} of {key!r}"
        states.check_list(iterator, part, label, 2)
        begin, end = (states.integer(iterator, bound, label) for bound in part)
        if not 0 <= begin <= end and (begin, end) != NOTHING_LEFT:
            raise states.mismatch(
                iterator, f"has {label} {begin} to {end}, expected 0 <= begin <= end"
            )


class ConcatThenSplitDatasetIterator(NodeIterator[Any]):
    """Iterates over rows of concatenated elements.

    The state is the parent's state before the element that starts a row, the rest of
    that element, and the number of rows returned since then.
    """

    _STATE = states.fields(
        parent_state=states.parent,
        remainder_slices=_check_slices,
        elements_from_buffer_after_checkpoint=states.count,
    )
    _FOLLOWS_PARENT = True
    _COMBINES_ELEMENTS = True

    def __init__(self, node: ConcatThenSplitIterDataset) -> None:
        super().__init__(node)
        self._layout = node._layout
        self._splitter = concat_split.Splitter(self._layout)
        self._rows: collections.deque[Any] = collections.deque()
        # True if the warning about a meta feature was logged.
        self._has_warned = False
        features = zip(self._layout.keys, self._layout.whole, strict=True)
        self._nothing_left: Slices = {
            k: NOTHING_LEFT for k, whole in features if not whole
        }
        self._restart(self._nothing_left, 0)

    def _restart(self, rest_slices: Slices, rows_to_skip: int) -> None:
        """Continue at the parent's position, with the rest of its next element."""
        self._ended = False
        # Whether a row is being filled; it starts at the saved position.
        self._is_filling = False
        # The parent's state at the saved position; None: read it when it is needed.
        self._parent_state: Any = None
        self._rest_slices = rest_slices
        self._rows_returned = 0
        # The remaining work of a `set_state`.
        self._must_restore = rest_slices != self._nothing_left
        self._rows_to_skip = rows_to_skip
        self._splitter.clear()
        self._rows.clear()

    def __next__(self) -> Any:
        if self._must_restore:
            self._restore_rest()
        while self._rows_to_skip:
            self._skip()
        return self._next()

    def get_state(self) -> Any:
        """Return where the last row, or group of rows, began, and the rows since."""
        return self._make_state()

    # `next` uses this: `get_state` of a chain's last iterator may raise, see
    # `refuse_missing_states`.
    def _make_state(self) -> Any:
        if self._parent_state is None:
            self._parent_state = self._parent.get_state()
        return {
            "parent_state": self._parent_state,
            "remainder_slices": dict(self._rest_slices),
            "elements_from_buffer_after_checkpoint": self._rows_returned
            + self._rows_to_skip,
        }

    def begin_of_last_row(self, key: Any) -> int:
        """Return the cells of the last row's first element that an earlier row has."""
        begin, _ = self._rest_slices.get(key, NOTHING_LEFT)
        return max(begin, 0) if self._rows_returned == 1 else 0

    def _go_to(self, state: Any) -> None:
        self._parent.set_state(state["parent_state"])
        slices = state["remainder_slices"].items()
        # JSON turns tuples into lists.
        rest_slices = {key: (begin, end) for key, (begin, end) in slices}
        self._restart(rest_slices, state["elements_from_buffer_after_checkpoint"])

    def _next(self) -> Any:
        """Return the next row. Used by `__next__`, and by `_skip` to drop the row."""
        if not self._rows and not self._ended:
            self._fill()
        if not self._rows:
            raise StopIteration
        self._rows_returned += 1
        return self._rows.popleft()

    def _fill(self) -> None:
        """Fill one row, and add rows of elements that fill a row by themselves."""
        if not self._is_filling:
            self._save_position()
            self._is_filling = True
        try:
            rows, self._ended = self._splitter.fill(self._parent)
        except Exception as error:
            note_outermost(error, self)
            raise
        self._is_filling = False
        self._rows.extend(rows)
        if not rows:  # The parent has ended: the state is its end.
            self._save_position()
        limit = self._splitter.limited_by
        if limit is not None and not self._has_warned:
            self._has_warned = True
            log.warning(
                "Meta feature %r limited packing: rows end when it is full, and other"
                " features are padded. Increase its length in length_struct.",
                limit,
            )

    def _save_position(self) -> None:
        """Save the position of the next row: the next element, or a split one."""
        split_element = self._splitter.remainder()
        self._rows_returned = 0
        self._rest_slices = self._nothing_left
        if split_element is None:
            self._parent_state = self._parent.get_state()
            return
        self._parent_state, ranges = split_element
        if ranges is not None:
            parts = dict(zip(self._layout.keys, ranges, strict=True))
            self._rest_slices = {key: parts[key] for key in self._nothing_left}

    def _restore_rest(self) -> None:
        """Read the element that starts the row again. A failed call can be repeated."""
        state = self._make_state()["parent_state"]
        rest_slices = {
            key: part for key, part in self._rest_slices.items() if part != NOTHING_LEFT
        }
        ranges = [rest_slices.get(key) for key in self._layout.keys]
        try:
            self._splitter.restore(next(self._parent), state, ranges)
        except StopIteration:
            self._parent.set_state(state)
            raise StateMismatch(
                "Got unexpected StopIteration from parent when restoring checkpoint"
                f" {self._make_state()} on {self}: the state needs another element, but"
                " the parent has ended. Restore it to the chain that saved it, with"
                " unchanged data."
            ) from None
        except Exception:
            self._parent.set_state(state)
            raise
        self._must_restore = False

    def _skip(self) -> None:
        """Skip a row that was returned before the position was saved."""
        try:
            self._next()
        except StopIteration:
            raise StateMismatch(
                f"{self}: the state needs"
                f" {self._rows_returned + self._rows_to_skip} rows after parent state"
                f" {self._parent_state}, but there are only {self._rows_returned}."
                " Restore it to the chain that saved it, with unchanged data."
            ) from None
        self._rows_to_skip -= 1


def _check_bos(
    handling: BOSHandling,
    features: Collection[str],
    token: int | None,
    meta_features: Collection[str],
) -> None:
    """Raise ValueError if BOS arguments contradict each other."""
    if handling is BOSHandling.DO_NOTHING and (token is not None or features):
        raise ValueError(
            f"bos_handling={handling} indicates that BOS handling is not used. So"
            " bos_token_id and bos_features should not be set."
        )
    if handling is not BOSHandling.DO_NOTHING and token is None:
        raise ValueError(f"bos_token_id must be set if bos_handling is {handling}.")
    if not set(meta_features).isdisjoint(features):
        raise ValueError(
            "bos_features and meta_features should not overlap. bos_features:"
            f" {features}, meta_features: {meta_features}"
        )


def columns_of(keys: tuple[Any, ...], meta_features: Collection[str]) -> dict[Any, int]:
    """Return the keys of a row in order, with the column number of each.

    A number is an index into the concatenation of all values, all segment ids and all
    positions, each in the order of `keys`; see `SplitLayout.columns`.
    """
    columns: dict[Any, int] = {}
    for number, key in enumerate(keys):
        columns[key] = number
        if key not in meta_features:
            columns[f"{key}_segment_ids"] = len(keys) + number
            columns[f"{key}_positions"] = 2 * len(keys) + number
    return columns
