"""Datasets that pack several sequences into each row, without splitting any.

Rows are filled a batch at a time.  A state has the parent's position before the first
element of the batch, and the number of its rows that were returned.  Restoring packs
the batch again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from gristmill import batching
from gristmill._base import log
from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._dataset.model import states
from gristmill._dataset.model.error_notes import note_outermost
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.node import seed_in_epoch
from gristmill._dataset.nodes.pack_layout import (
    Features,
    check_flat,
    make_layout,
    pack_layout,
)
from gristmill._hot import packing, tree
from gristmill.errors import StateMismatch
from gristmill.records import Record


class PackIterDataset(IterDataset[Any]):
    """Packs elements into rows. Subclasses define how a row is chosen."""

    _KIND = "batch"
    _best_fit: ClassVar[bool]

    def __init__(  # noqa: PLR0913 (Grain's arguments)
        self,
        parent: IterDataset[Any],
        *,
        length_struct: Any,
        num_packing_bins: int,
        seed: int = 0,
        shuffle_bins: bool = True,
        shuffle_bins_group_by_feature: str | None = None,
        meta_features: Sequence[str] = (),
        pack_alignment_struct: Any = None,
        padding_struct: Any = None,
        max_sequences_per_bin: int | None = None,
    ) -> None:
        super().__init__(parent)
        check_integer("seed", seed)
        check_flag("shuffle_bins", shuffle_bins)
        self._length_struct = length_struct
        self._num_packing_bins = num_packing_bins
        self._meta_features = meta_features
        self._layout = pack_layout(
            length_struct,
            rows=num_packing_bins,
            best_fit=self._best_fit,
            meta_features=meta_features,
            alignments=pack_alignment_struct,
            paddings=padding_struct,
            max_sequences=max_sequences_per_bin,
        )
        self._shuffle = (
            RowShuffle(seed, shuffle_bins_group_by_feature) if shuffle_bins else None
        )
        self._random = "order" if shuffle_bins else None

    def __iter__(self) -> DatasetIterator[Any]:
        check_flat(self._length_struct, self._meta_features)
        return PackingDatasetIterator(self)

    def _in_epoch(self, epoch: int) -> Self:
        copied = super()._in_epoch(epoch)
        if self._shuffle is not None:
            seed = seed_in_epoch(self._shuffle.seed, epoch)
            copied._shuffle = dataclasses.replace(self._shuffle, seed=seed)
        return copied


class FirstFitPackIterDataset(PackIterDataset):
    """Pack each element into the first of several rows that has room for it.

    Elements are dicts of arrays.  The features named in `length_struct` are
    concatenated along their first axis, the others are dropped.  A scalar counts as one
    cell.  A row is a dict; for a feature ``k`` of shape ``(n, *S)`` it has

    - ``k``: shape ``(length, *S)`` and the dtype of the batch's first element, padded
      with zeros or the value from `padding_struct`;
    - ``k_segment_ids``: int32, shape ``(length,)``: 1 for the cells of the row's first
      element, 2 for those of its second, ..., 0 for padding;
    - ``k_positions``: int32, shape ``(length,)``: 0, 1, 2, ... in each element.

    When an element does not fit into any row, all rows are returned, and it starts the
    next batch.  More rows leave less padding.  A row may have elements of several
    epochs.

    Args:
        parent: The dataset of the elements.
        length_struct: The number of cells of each feature in a row.
        num_packing_bins: The number of rows that are filled at the same time, at
            least 1.
        seed: The seed for the order of rows.
        shuffle_bins: Whether to shuffle the rows of each batch.
        shuffle_bins_group_by_feature: Sorts rows by the mean of the distinct nonzero
            values of this feature instead, and shuffles only rows with the same mean.
            Used with `shuffle_bins` only.
        meta_features: Features that get no segment ids and positions. One that is not
            in `length_struct` is not packed: a row has a list of its elements' values.
        pack_alignment_struct: Elements begin at multiples of this number of cells; has
            the structure of `length_struct`. None for 1.
        padding_struct: The value of unused cells; has the structure of
            `length_struct`. None, also for single features, for zeros.
        max_sequences_per_bin: The most elements in a row; None for no limit.

    Raises:
        TypeError: `length_struct` is not a dict of ints.
        ValueError: An argument is out of range, or has another structure than
            `length_struct`. At iteration: a feature is longer than a row; the element
            is dropped, and ``next`` goes on with the one after it.

    Example:
        >>> ds = gristmill.MapDataset.source([{"x": np.ones(n)} for n in (3, 4, 2)])
        >>> packed = gristmill.experimental.FirstFitPackIterDataset(
        ...     ds.to_iter_dataset(), length_struct={"x": 5}, num_packing_bins=2,
        ...     shuffle_bins=False,
        ... )
        >>> [row["x_segment_ids"].tolist() for row in packed]
        [[1, 1, 1, 2, 2], [1, 1, 1, 1, 0]]
    """

    _best_fit = False


class BestFitPackIterDataset(PackIterDataset):
    """Pack each element into the fullest of several rows that has room for it.

    It has the arguments and rows of `FirstFitPackIterDataset`, but an element is packed
    into the row with the most used cells, counting all features. Ties go to the first
    row. This leaves less padding if lengths vary a lot.

    Args:
        parent: The dataset of the elements.
        length_struct: The number of cells of each feature in a row.
        num_packing_bins: The number of rows that are filled at the same time.
        seed: The seed for the order of rows.
        shuffle_bins: Whether to shuffle the rows of each batch.
        shuffle_bins_group_by_feature: The feature to sort rows by, or None.
        meta_features: Features that get no segment ids and positions.
        pack_alignment_struct: Elements begin at multiples of this number of cells.
        padding_struct: The value of unused cells; None for zeros.
        max_sequences_per_bin: The most elements in a row; None for no limit.

    Raises:
        TypeError: `length_struct` is not a dict of ints.
        ValueError: An argument is out of range, or a feature is longer than a row.

    Example:
        >>> ds = gristmill.MapDataset.source([{"x": np.ones(n)} for n in (2, 4, 3, 1)])
        >>> packed = gristmill.experimental.BestFitPackIterDataset(
        ...     ds.to_iter_dataset(), length_struct={"x": 5}, num_packing_bins=2,
        ...     shuffle_bins=False,
        ... )
        >>> [row["x_segment_ids"].tolist() for row in packed]
        [[1, 1, 2, 2, 2], [1, 1, 1, 1, 2]]
    """

    _best_fit = True


@dataclasses.dataclass(frozen=True)
class RowShuffle:
    """Orders the rows of a batch, by a feature first if `group_by` is set."""

    seed: int
    group_by: str | None

    def order(self, batch: packing.PackedRows, earlier_rows: int) -> list[int]:
        """Return the numbers of a batch's rows in the order in which they are returned.

        Earlier batches had `earlier_rows` rows; a restored batch has the same order.
        """
        rng = np.random.default_rng(self.seed + earlier_rows)
        rows = range(len(batch))
        order: list[int] = rng.permuted(rows).tolist()
        if self.group_by is None:
            return order
        groups = [self._group(batch.row(row)) for row in rows]
        return [row for *_, row in sorted(zip(groups, order, rows, strict=True))]

    def _group(self, row: Any) -> Any:
        """Return the mean of the distinct nonzero values of a row's feature, or 0."""
        if self.group_by not in row:
            raise KeyError(
                "shuffle_bins_group_by_feature must be one of the features of packed"
                f" rows, {list(row)!r}, got {self.group_by!r}."
            )
        values = np.unique(row[self.group_by])
        nonzero = np.count_nonzero(values)
        return np.nan_to_num(np.sum(values) / nonzero, nan=0.0) if nonzero else 0.0


class PackingDatasetIterator(NodeIterator[Any]):
    """Iterates over packed rows."""

    _STATE = states.fields(
        parent=states.parent, next_row=states.count, counter=states.count
    )
    _FOLLOWS_PARENT = True
    _COMBINES_ELEMENTS = True

    def __init__(self, node: PackIterDataset) -> None:
        super().__init__(node)
        self._layout = node._layout
        # The bytes of the values of one row; None before the first batch.
        self._row_bytes: int | None = None
        self._restart(0, 0)

    def _restart(self, next_row: int, counter: int) -> None:
        """Continue at row `next_row` of the batch at the parent's position."""
        self._packer = packing.Packer(self._layout)
        self._batch: packing.PackedRows | None = None
        self._order: Sequence[int] = ()
        self._next_row = next_row
        # The number of rows returned since the first batch.
        self._counter = counter
        # The parent's states before the first element of this batch, read when it is
        # needed, and of the next batch.
        self._first_state: Any = None
        self._next_first_state: Any = None

    def __next__(self) -> Any:
        batch = self._batch or self._pack()
        row = batch.row(self._order[self._next_row])
        self._next_row += 1
        self._counter += 1
        if self._next_row == len(batch):
            self._batch = None
            self._next_row = 0
            self._first_state = self._next_first_state
        return row

    def get_state(self) -> Any:
        """Return the parent's position before the batch, and the rows returned."""
        return self._make_state()

    # `next` uses this: `get_state` of a chain's last iterator may raise, see
    # `refuse_missing_states`.
    def _make_state(self) -> Any:
        if self._first_state is None:
            self._first_state = self._parent.get_state()
        return {
            "parent": self._first_state,
            "next_row": self._next_row,
            "counter": self._counter,
        }

    def _go_to(self, state: Any) -> None:
        self._parent.set_state(state["parent"])
        self._restart(state["next_row"], state["counter"])

    def get_packed_batch_size_bytes(self) -> int:
        """Return the bytes that Grain would need to fill a batch.

        Raises:
            ValueError: No batch has been filled yet.
        """
        if self._row_bytes is None:
            raise ValueError(
                "No current batch. Size can only be computed after at least one element"
                " has been packed."
            )
        # Besides the values, two int32 for each cell and an int64 for each feature.
        lengths = self._layout.lengths
        return self._layout.rows * (self._row_bytes + 8 * (sum(lengths) + len(lengths)))

    def _pack(self) -> packing.PackedRows:
        """Fill a batch and order its rows. Raises StopIteration at the end."""
        state_before = self._make_state()
        try:
            next_first_state, leftover = self._packer.fill(self._parent)
        except Exception as error:
            note_outermost(error, self)
            raise
        if leftover is None and not len(self._packer):
            raise StopIteration
        batch = self._packer.finish()
        self._row_bytes = sum(values[0].nbytes for values in batch.values)
        if self._next_row >= len(batch):
            self.set_state(state_before)
            raise StateMismatch(
                f"{self}: the state needs row {self._next_row} of a batch that has only"
                f" {len(batch)} rows. Restore it to the chain that saved it, with"
                " unchanged data."
            )
        self._next_first_state = next_first_state
        if leftover is not None:
            self._packer.add(*leftover)
        self._order = range(len(batch))
        if self._node._shuffle is not None:
            self._order = self._node._shuffle.order(
                batch, self._counter - self._next_row
            )
        self._batch = batch
        return batch


@dataclasses.dataclass
class PackAndBatchOperation:
    """Pack elements into the first row of a batch that has room, row by row.

    This is an old operation of `DataLoader`.  `FirstFitPackIterDataset` is faster and
    saves its position.  Each batch is a tuple of three trees like `length_struct`:

    - the data, of shape ``(batch_size, length, *S)`` for leaves of shape ``(n, *S)``;
    - the segment ids, int32 of shape ``(batch_size, length)``, which number the
      elements of a row from 1 and are 0 for padding;
    - the positions in each element, with the same dtype and shape.

    Args:
        length_struct: A tree like an element, whose leaves are the number of cells in
            a row.
        batch_size: Rows per batch, at least 1.
        max_sequences_per_bin: The most elements in a row; None for no limit.

    Raises:
        TypeError: A length is not an int.
        ValueError: An argument is out of range; an element has another structure, or is
            longer than a row.

    Example:
        >>> loader = gristmill.DataLoader(
        ...     data_source=[np.ones(n) for n in (3, 1, 4)],
        ...     sampler=gristmill.samplers.SequentialSampler(3),
        ...     operations=[gristmill.experimental.PackAndBatchOperation(5, 1)],
        ... )
        >>> [segment_ids.tolist() for _, segment_ids, _ in loader]
        [[[1, 1, 1, 2, 0]], [[1, 1, 1, 1, 0]]]
    """

    length_struct: Any
    batch_size: int
    max_sequences_per_bin: int | None = None

    def __post_init__(self) -> None:
        log.error(
            "PackAndBatchOperation is deprecated. Use"
            " gristmill.experimental.FirstFitPackIterDataset instead: it is faster and"
            " keeps its position in saved states."
        )
        features = Features(self.length_struct)
        layout = make_layout(
            features,
            self.batch_size,
            "batch_size",
            self.max_sequences_per_bin,
            too_long="Inputs to PackAndBatchOperation must be truncated to max length.",
        )
        self._treedef = features.treedef
        self._layout = dataclasses.replace(layout, keys=None, leaves_of=self._leaves_of)

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Pack elements and yield the batches. The last batch may be partly empty."""
        packer = packing.Packer(self._layout)
        metadata = None
        for record in input_iterator:
            if not packer.add(record.data):
                assert metadata is not None
                yield Record(metadata, self._batch(packer.finish()))
                packer.add(record.data)
            metadata = record.metadata.remove_record_key()
        if metadata is not None:
            yield Record(metadata, self._batch(packer.finish()))

    def _leaves_of(self, element: Any) -> list[Any]:
        leaves, treedef = tree.flatten(element, batching.tree_rules())
        if treedef != self._treedef:
            raise ValueError(
                "An element must have the structure of length_struct,"
                f" {self.length_struct}, got {treedef}. Make them equal in a map before"
                " packing."
            )
        return leaves

    def _batch(self, packed: packing.PackedRows) -> tuple[Any, Any, Any]:
        data, segment_ids, positions = (
            tree.unflatten(self._treedef, leaves)
            for leaves in (packed.values, packed.segment_ids, packed.positions)
        )
        return data, segment_ids, positions
