"""Copies nodes that change rows or pack elements, for elements with ids.

The copies pack the ids of each element as a feature of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill import batching
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, NodeIterator
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.node import with_parents
from gristmill._dataset.nodes.concat_split import columns_of
from gristmill._dataset.nodes.map import MapIterDataset
from gristmill._dataset.parallel.traced_element import (
    IDS_DTYPE,
    Ids,
    TracedElement,
    with_span,
)
from gristmill._hot import tree

IDS_FEATURE = "gristmill_ids"  # The feature of packed elements that has their ids.
# The most ids of a row that is cut out of elements laid end to end.
MAX_IDS_OF_ROW = 1 << 16


def trace_rebatch(dataset: Any, copied: Any) -> Any:
    """Return a traced copy of a node that changes the batch size."""

    def with_feature(traced: TracedElement) -> Any:
        leaves, _ = tree.flatten(traced.element, batching.tree_rules())
        rows = [*traced.rows]
        if len(rows) == 1:  # One record has all rows.
            rows *= len(leaves[0])
        if len(rows) != len(leaves[0]):
            raise TypeError(
                f"{node_line(dataset)} gets batches of {len(leaves[0])} rows that are"
                f" made of {len(rows)} elements, so the records of a row are not known."
                " Call replay(state) instead."
            )
        ids = np.empty(len(rows), np.object_)
        ids[:] = rows
        return {"element": traced.element, IDS_FEATURE: ids}

    def call_traced(batch: Any) -> TracedElement:
        return TracedElement(batch["element"], batch[IDS_FEATURE].tolist())

    with_ids = MapIterDataset(copied._parent, with_feature)
    return MapIterDataset(with_parents(copied, [with_ids]), call_traced)


def trace_pack(dataset: Any, copied: Any) -> Any:
    """Return a traced copy of a node that packs whole elements."""
    layout = dataset._layout
    column = 3 * len(layout.lengths) + len(layout.meta_keys)  # After all others.
    changed_fields: dict[str, Any] = {}
    if layout.column_keys is not None:
        changed_fields["column_keys"] = (*layout.column_keys, IDS_FEATURE)
    else:
        changed_fields["assemble"] = lambda leaves: {
            **layout.assemble(leaves[:-1]),
            IDS_FEATURE: leaves[-1],
        }
    copied._layout = dataclasses.replace(
        layout,
        meta_keys=(*layout.meta_keys, IDS_FEATURE),
        columns=(*layout.columns, column),
        **changed_fields,
    )
    (first, *_) = layout.column_keys or dataset._length_struct
    with_ids = _WithIds(copied._parent, lambda traced: _spans_of(traced, first))

    def call_traced(row: Any) -> TracedElement:
        return TracedElement(row, [np.concatenate(row.pop(IDS_FEATURE))])

    return MapIterDataset(with_parents(copied, [with_ids]), call_traced)


def trace_concat_split(dataset: Any, copied: Any) -> Any:
    """Return a traced copy of a node that splits elements."""
    layout = dataset._layout
    keys = (*layout.keys, IDS_FEATURE)
    whole = (*layout.whole, True)  # Ids are never split.
    metas = [key for key, each in zip(keys, whole, strict=True) if each]
    columns = columns_of(keys, metas)
    copied._layout = dataclasses.replace(
        layout,
        keys=keys,
        lengths=(*layout.lengths, MAX_IDS_OF_ROW),
        whole=whole,
        bos=(*layout.bos, False),
        columns=tuple(columns.values()),
        column_keys=tuple(columns),
    )
    with_ids = _WithIds(copied._parent, _cells_of)
    return _SplitRowsDataset(with_parents(copied, [with_ids]))


class _WithIds(MapIterDataset[Any]):
    """Adds the ids of traced elements to their features."""

    def __init__(
        self, parent: Any, ids_of_element: Callable[[TracedElement], Any]
    ) -> None:
        super().__init__(
            parent,
            lambda traced: {**traced.element, IDS_FEATURE: ids_of_element(traced)},
        )


def _spans_of(traced: TracedElement, feature: Any) -> Ids:
    """Return the ids of an element; its own has all cells of a feature."""
    ids = traced.ids
    if len(ids) != 1:
        return ids
    cells = np.shape(traced.element[feature])
    return with_span(ids, 0, cells[0] if cells else 1)


def _cells_of(traced: TracedElement) -> npt.NDArray[np.int64]:
    """Return a row of integers for each id of an element."""
    ids = traced.ids
    is_first = np.arange(len(ids)) == 0
    # Cells without an id are 0.
    fields = [ids["source"] + 1, ids["key"], ids["epoch"], is_first, ids["end"]]
    return np.stack(fields, axis=1, dtype=np.int64)


class _SplitRowsDataset(IterDataset[Any]):
    """Traced rows of split elements."""

    def __iter__(self) -> DatasetIterator[Any]:
        return _SplitRowsIterator(self)


class _SplitRowsIterator(NodeIterator[Any]):
    """Iterates over traced rows; the parent iterates over rows of split elements."""

    def __next__(self) -> TracedElement:
        parent: Any = self._parents[0]
        row = next(parent)
        cells = row.pop(IDS_FEATURE)
        cells = cells[cells[:, 0] > 0]
        ids = np.zeros(len(cells), IDS_DTYPE)
        ids["source"], ids["key"] = cells[:, 0] - 1, cells[:, 1]
        ids["epoch"], ids["end"] = cells[:, 2], cells[:, 4]
        segments = np.cumsum(cells[:, 3])  # The segment of each id, from 1.
        feature = self._node._parent.span_feature
        if feature is not None and cells[:, 3].all():
            counts = np.bincount(row[f"{feature}_segment_ids"], minlength=len(ids) + 1)
            if len(ids):
                ids["begin"][0] = parent.begin_of_last_row(feature)
            ids["end"] = ids["begin"] + counts[segments]
        return TracedElement(row, [ids])
