"""A dataset that changes the batch size of its parent."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill import batching
from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._dataset.model.error_notes import note_outermost
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    CountingIterator,
    DatasetIterator,
)
from gristmill._hot import cancellation, tree
from gristmill.errors import ShapeMismatch


class RebatchIterDataset(IterDataset[Any]):
    """Batches of another size, of the same rows in the same order.

    Args:
        parent: A dataset of batches, which are trees of arrays with first axes of the
            same length.
        batch_size: The number of rows of a new batch, ``B``, at least 1.
        drop_remainder: Whether to drop a last, shorter batch.

    A batch that lies within one of the parent's is a view of it.

    Raises:
        ValueError: The size is not positive. While iterating: a batch has no rows, or
            its leaves differ in length.
        ShapeMismatch: While iterating: two batches differ in structure.

    Example:
        >>> ds = gristmill.MapDataset.range(5).batch(3).to_iter_dataset()
        >>> ds = gristmill.experimental.RebatchIterDataset(ds, 2)
        >>> [batch.tolist() for batch in ds]
        [[0, 1], [2, 3], [4]]
    """

    _KIND = "batch"
    _REPR_ARGS = ("batch_size", "drop_remainder")

    def __init__(
        self, parent: IterDataset[Any], batch_size: int, drop_remainder: bool = False
    ) -> None:
        super().__init__(parent)
        check_integer("batch_size", batch_size)
        check_flag("drop_remainder", drop_remainder)
        if batch_size <= 0:
            raise ValueError(f"batch_size must be positive. Got {batch_size}.")
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder

    def __iter__(self) -> DatasetIterator[Any]:
        return RebatchDatasetIterator(self)

    @property
    def _element_spec(self) -> Any:
        spec = self._parent._element_spec
        leaves, treedef = tree.flatten(spec, batching.tree_rules())
        for i, leaf in enumerate(leaves):
            if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
                shape = (self._batch_size, *leaf.shape[1:])
                leaves[i] = type(leaf)(shape=shape, dtype=leaf.dtype)
        return tree.unflatten(treedef, leaves)


class RebatchDatasetIterator(CountingIterator[Any]):
    """Iterates over batches of another size.

    The state is the position before the parent's current batch, and the number of its
    rows that were returned.  Restoring reads that batch again.
    """

    _COUNTER_NAME = "batch_idx"

    def __init__(self, node: RebatchIterDataset) -> None:
        super().__init__(node)
        # The parent's state before its current batch.
        self._state_before_batch = self._parent.get_state()
        # The leaves of the parent's current batch, the structure of the first batch,
        # which all must have, and the number of rows of the current batch.
        self._leaves: list[Any] | None = None
        self._treedef: tree.TreeDef | None = None
        self._rows = 0

    def __next__(self) -> Any:
        pieces: list[list[Any]] = []
        missing = self._node._batch_size
        while missing and self._ensure_rows():
            assert self._leaves is not None
            end = min(self.counter + missing, self._rows)
            pieces.append([leaf[self.counter : end] for leaf in self._leaves])
            missing -= end - self.counter
            self.counter = end
        if not pieces or (missing and self._node._drop_remainder):
            raise StopIteration
        assert self._treedef is not None
        leaves = pieces[0]
        if len(pieces) > 1:
            leaves = [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
        return tree.unflatten(self._treedef, leaves)

    def _go_to(self, state: Any) -> None:
        super()._go_to(state)
        self._state_before_batch = self._parent.get_state()
        self._leaves = None

    def _parent_state(self) -> Any:
        return self._state_before_batch

    def _ensure_rows(self) -> bool:
        """Return whether rows are left, after taking the next batch if necessary."""
        while self._leaves is None or self.counter >= self._rows:
            # The rows of this batch that were returned before a state was saved.
            counter = self.counter if self._leaves is None else 0
            cancellation.check()
            self._state_before_batch = self._parent.get_state()
            try:
                try:
                    batch = next(self._parent)
                except StopIteration:
                    return False
                leaves, treedef = tree.flatten(batch, batching.tree_rules())
                self._treedef = self._treedef or treedef
                self._rows = _check_rows(leaves, treedef, self._treedef)
            except Exception as error:
                self._state_before_batch, self.counter = self._parent.get_state(), 0
                self._leaves = None
                note_outermost(error, self)
                raise
            self._leaves, self.counter = leaves, counter
        return True


def _check_rows(
    leaves: list[Any], treedef: tree.TreeDef, expected: tree.TreeDef
) -> int:
    """Return the number of rows of a batch, whose structure must be `expected`."""
    if treedef != expected:
        found, first = (
            tree.unflatten(each, ["leaf"] * each.num_leaves)
            for each in (treedef, expected)
        )
        raise ShapeMismatch(
            f"A batch to rebatch must have the structure of the first, {first}, got"
            f" {found}. Make them equal in a map before this."
        )
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) > 1:
        raise ValueError(
            "Leaves of a batch to rebatch must have the same number of rows, got"
            f" {sorted(lengths)}. Drop leaves that are not batched."
        )
    rows = max(lengths, default=0)
    if not rows:
        raise ValueError("Rebatching with starting batch size of 0 is not supported.")
    return rows
