"""Finds the source records of a dataset's elements.

Batches of such elements are made without a Python object for each element, see
`gristmill._engine.native_batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from gristmill import batching
from gristmill._base.types import Indices, Int64Array
from gristmill._dataset.model.blocks import indices_from, is_built_in
from gristmill._dataset.nodes.map import MapMapDataset
from gristmill._dataset.nodes.order import IndexMapDataset, OrderMapDataset
from gristmill._dataset.nodes.source import SourceMapDataset
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator
from gristmill._engine.column_batches import ColumnBatches
from gristmill._engine.native_batches import NativeBatches, open_batches
from gristmill.sources import as_columns


class DatasetKeys:
    """The keys of a source's records at the indices of a dataset; see `KeyBlocks`.

    Args:
        length: The number of the dataset's elements.
        records: The number of the source's records.
        orders: The nodes that order the elements, the last one first.

    Attributes:
        length: The number of the dataset's elements.
    """

    def __init__(
        self, length: int, records: int, orders: Sequence[IndexMapDataset[Any]]
    ) -> None:
        self.length = length
        self._records = records
        self._orders = orders

    def block(self, first: int, count: int) -> Int64Array:
        """Return the keys at `count` indices from `first` on, int64 of shape (n,)."""
        indices = indices_from(first, count)
        for order in self._orders:
            indices = order._to_ancestor_indices(indices)
        return (indices % self._records).astype(np.int64, copy=False)

    def window_left(self, position: int) -> int:
        """Return 0: no windows are known."""
        return 0


class SourceRecords(NamedTuple):
    """The source records of a dataset's elements.

    Attributes:
        source: The source of the records.
        maps: The function that maps each record, if any: a list of at most one.
        keys: The keys of the records.
    """

    source: Any
    maps: list[Callable[[Any], Any]]
    keys: DatasetKeys


def records_of(dataset: Any) -> SourceRecords | None:
    """Return the source record of each element of a dataset.

    Returns None unless the dataset is a source, nodes that order its elements, and at
    most one map.
    """
    orders: list[IndexMapDataset[Any]] = []
    maps: list[Callable[[Any], Any]] = []
    node = dataset
    while type(node) is not SourceMapDataset:
        if isinstance(node, IndexMapDataset) and is_built_in(type(node)):
            orders.append(node)
            node = node._ancestor
        elif type(node) is MapMapDataset and not maps:
            maps.append(node._call)
            node = node._parent
        else:
            return None
    source = node._reader
    return SourceRecords(source, maps, DatasetKeys(len(dataset), len(source), orders))


def column_batches_of(dataset: Any) -> ColumnBatches | None:
    """Return an object that makes batches of a dataset's columns, or None."""
    records = records_of(dataset)
    if records is None or records.maps:
        return None
    columns = as_columns(records.source)
    if columns is None:
        return None
    return ColumnBatches(columns, records.keys, batching.tree_rules())


def batches_of(
    feed: PrefetchDatasetIterator[Any],
) -> NativeBatches | ColumnBatches | None:
    """Return an object that makes batches without creating elements, or None."""
    records = records_of(feed.dataset)
    if records is None:
        return None
    rules, options = batching.tree_rules(), feed.read_options
    return open_batches(*records, rules, options, feed.looks_ahead)


@runtime_checkable
class PackedRows(Protocol):
    """A dataset that makes batches of its elements, which are packed rows."""

    def _batches(self, indices: Indices, sizes: Sequence[int]) -> list[Any]: ...


def packed_rows_of(
    dataset: Any,
) -> tuple[PackedRows | None, list[OrderMapDataset[Any]]]:
    """Return the packed rows that are a dataset's elements, and the nodes after them.

    The first is None if the elements are not packed rows.
    """
    orders = []
    while (
        isinstance(dataset, OrderMapDataset)
        and dataset._IS_SELECTION
        and is_built_in(type(dataset))
    ):
        orders.append(dataset)
        dataset = dataset._ancestor
    is_packed = isinstance(dataset, PackedRows) and is_built_in(type(dataset))
    return dataset if is_packed else None, orders
