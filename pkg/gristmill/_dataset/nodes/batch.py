"""Datasets that group consecutive elements."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill import batching
from gristmill._base.checks import check_callable, check_flag, check_integer
from gristmill._base.types import Alloc, Int64Array, T
from gristmill._dataset.model.blocks import (
    BlockMapDataset,
    block_of,
    epochs_and_offsets,
)
from gristmill._dataset.model.failing import note_element, note_step
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import Dataset, builds, chain_of
from gristmill._dataset.model.spec import spec_of_batch
from gristmill._dataset.nodes.rows import Rows
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator
from gristmill._hot import steps

BatchFn = Callable[[list[Any]], Any]
# What Grain says where a batch of indexed elements cannot be made.
SPARSE = (
    "\nIf you are trying to batch elements after a sparse transformation, such as"
    " `filter`, you need to first convert the dataset to `IterDataset` with"
    " `to_iter_dataset()` and then apply `batch`."
)
MADE = "made the batch up to"


class Batching(Dataset):
    """A batch dataset of either kind.

    Args:
        parent: Has the elements.
        batch_size: How many make a batch.
        drop_remainder: Whether a last, shorter batch is left out.
        batch_fn: Makes a batch; None stacks.
    """

    _KIND = "batch"

    def __init__(
        self,
        parent: Any,
        batch_size: int,
        drop_remainder: bool = False,
        batch_fn: BatchFn | None = None,
    ) -> None:
        super().__init__(parent)
        check_integer("batch_size", batch_size)
        check_flag("drop_remainder", drop_remainder)
        if batch_fn is not None:
            check_callable("batch_fn", batch_fn, " Leave it out to stack leaves.")
        if operator.index(batch_size) <= 0:
            raise ValueError(f"batch_size must be positive. Got {batch_size}.")
        self._batch_size = self._stride = operator.index(batch_size)
        self._drop_remainder = drop_remainder
        self._batch_fn = batch_fn

    @property
    def _element_spec(self) -> Any:
        return spec_of_batch(
            self._parent._element_spec,
            self._batch_size,
            self._drop_remainder,
            self._batch_fn,
        )

    def _arguments_text(self) -> str:
        return f"(batch_size={self._batch_size}, drop_remainder={self._drop_remainder})"


@builds("MapDataset.batch")
class BatchMapDataset(Batching, BlockMapDataset[T]):
    """Batches of the parent's elements; none crosses an epoch."""

    _KIND = "batch"

    def __init__(
        self,
        parent: MapDataset[Any],
        batch_size: int,
        drop_remainder: bool = False,
        batch_fn: BatchFn | None = None,
    ) -> None:
        super().__init__(parent, batch_size, drop_remainder, batch_fn)
        _refuse_sparse(parent)
        self._measure()

    def _measure(self) -> None:
        self._parent_length = len(self._parent)
        if self._drop_remainder:
            self._length = self._parent_length // self._batch_size
        else:
            # In floating point, as Grain has it: an endless parent is rounded.
            self._length = math.ceil(self._parent_length / self._batch_size)
        self._rows = Rows.of(self._parent) if self._batch_fn is None else None

    def __len__(self) -> int:
        return self._length

    def _block(self, indices: Int64Array) -> list[Any]:
        epochs, batches = epochs_and_offsets(indices, self._length)
        self._check(epochs)
        firsts = batches * self._batch_size
        lasts = np.minimum(firsts + self._batch_size, self._parent_length)
        offsets = epochs * self._parent_length
        if self._rows is not None:
            sizes = (lasts - firsts).tolist()
            begins = (firsts + offsets).tolist()
            pairs = zip(begins, sizes, strict=True)
            return [self._rows.range(begin, size) for begin, size in pairs]
        ranges = [
            np.arange(first, last, dtype=np.int64)
            for first, last in zip(firsts + offsets, lasts + offsets, strict=True)
        ]
        elements = block_of(self._parent, np.concatenate(ranges))
        made: list[Any] = []
        first = 0
        for range_ in ranges:
            part = elements[first : first + len(range_)]
            made.append(self._make(part, int(range_[-1])))
            first += len(range_)
        return made

    def _check(self, epochs: Int64Array) -> None:
        """Raise where the parent's indices do not fit into 64 bits."""
        for epoch in (int(epochs.min(initial=0)), int(epochs.max(initial=0))):
            begin = epoch * self._parent_length
            if not -(2**63) <= begin < 2**63 - self._parent_length:
                raise OverflowError(
                    f"{self}: epoch {epoch} begins at index {begin} of its parent,"
                    " which does not fit into 64 bits"
                )

    def _make(self, elements: list[Any], last: int) -> Any:
        try:
            return (self._batch_fn or batching.make_batch)(elements)
        except Exception as error:
            if isinstance(error, ValueError):
                error.add_note(SPARSE)
            note_element(error, self, self._parent, last, MADE)
            raise


@builds("IterDataset.batch")
class BatchIterDataset(Batching, IterDataset[T]):
    """Batches of the parent's elements."""

    def __iter__(self) -> DatasetIterator[T]:
        return BatchDatasetIterator(self)


class BatchDatasetIterator(NodeIterator[T]):
    """Iterates over batches.

    Attributes:
        alloc: Makes the arrays of batches that are stacked; None leaves it to NumPy.
    """

    _TAKES_IN_STEP = True
    _BATCHES = True

    def __init__(self, node: Batching) -> None:
        super().__init__(node)
        self.alloc: Alloc | None = None
        self._batch_size = node._batch_size
        self._drop_remainder = node._drop_remainder
        self._batch_fn = node._batch_fn
        self._rules = batching.tree_rules()
        self._rows: Rows | None = None
        parent = self._parent
        if self._batch_fn is None and type(parent) is PrefetchDatasetIterator:
            self._rows = Rows.of(parent.dataset)

    def __next__(self) -> Any:
        if self._rows is not None:
            return self._gathered(self._rows)
        elements = steps.take(self._parent, self._batch_size)
        if not elements or (self._drop_remainder and len(elements) < self._batch_size):
            raise StopIteration
        try:
            if self._batch_fn is not None:
                return self._batch_fn(elements)
            return batching.make_batch(elements, rules=self._rules, alloc=self.alloc)
        except Exception as error:
            note_step(error, self, MADE)
            raise

    def _gathered(self, rows: Rows) -> Any:
        feed: Any = self._parent
        first, count = feed.pass_over(self._batch_size)
        if not count or (self._drop_remainder and count < self._batch_size):
            raise StopIteration
        return rows.range(first, count, self.alloc)


def _refuse_sparse(dataset: Any) -> None:
    """Raise where an element may be absent: a batch could not have it."""
    for node in chain_of(dataset):
        if node._SPARSE is not None:
            name = node._SPARSE.rpartition(".")[2]
            raise ValueError(
                f"`MapDataset.batch` can not follow `{node._SPARSE}` because `{name}`"
                " can discard elements. Convert `MapDataset` to `IterDataset` with"
                " `to_iter_dataset()` before calling `batch`."
            )
