"""Copies chains so that each element carries the ids of the records it is made of.

The copy of a source wraps each element in a `TracedElement`.  The copies of steps and
batches unwrap elements for the user's functions.  Other nodes do not change.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill import batching
from gristmill._base.types import Indices
from gristmill._dataset.model.blocks import BlockMapDataset, block_of
from gristmill._dataset.model.error_notes import record_of
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.node import ParentSpec, is_ours, with_parents
from gristmill._dataset.nodes.batch import BatchBase, BatchMapDataset
from gristmill._dataset.nodes.block_map import BlockMapBase
from gristmill._dataset.nodes.bucket import BucketIterDataset
from gristmill._dataset.nodes.concat_split import ConcatThenSplitIterDataset, columns_of
from gristmill._dataset.nodes.flat_map import FlatMapBase
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.map import (
    FilterBase,
    MapBase,
    MapIterDataset,
    MapMapDataset,
    MapWithIndexBase,
)
from gristmill._dataset.nodes.packing import PackIterDataset
from gristmill._dataset.nodes.plan_packing import PackMapDataset
from gristmill._dataset.nodes.rebatch import RebatchIterDataset
from gristmill._dataset.nodes.shard import PadMapDataset
from gristmill._dataset.nodes.zip import ZipBase
from gristmill._dataset.parallel.pack_tracing import TracedPackDataset
from gristmill._dataset.parallel.traced_element import (
    IDS_DTYPE,
    Ids,
    TracedElement,
    ids_of,
)
from gristmill._hot import tree
from gristmill._hot.block_call import BlockCall

IDS_FEATURE = "gristmill_ids"  # The feature of packed elements that has their ids.
# The most ids of a row that is cut out of elements laid end to end.
MAX_IDS_OF_ROW = 1 << 16


def _unwrap(traced: TracedElement | None) -> Any:
    """Return the element inside; None if it is absent."""
    return None if traced is None else traced.element


def _ids_of_each(elements: Iterable[TracedElement | None]) -> list[Ids]:
    """Return the ids of each of several elements."""
    return [each.ids for each in elements if each is not None]


class TracedSourceDataset(BlockMapDataset[Any]):
    """The elements of a dataset without parents, each with its id.

    Args:
        source: The dataset.
        number: The number of the source in the chain.
    """

    def __init__(self, source: Any, number: int) -> None:
        super().__init__()
        self._traced_source = source
        self._number = number
        self._SLICEABLE = source._SLICEABLE  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self._traced_source)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep the elements of a slice of the source."""
        part = copy.copy(self._traced_source)
        part.set_slice(sl, sequential_slice)
        self._traced_source = part

    def _record(self, index: int) -> int | None:
        record = record_of(self._traced_source, index)
        return index % len(self) if record is None else record

    def _block(self, indices: Indices) -> list[Any]:
        elements = block_of(self._traced_source, indices)
        return [
            None if element is None else TracedElement(element, [self._make_id(index)])
            for element, index in zip(elements, indices.tolist(), strict=True)
        ]

    def _make_id(self, index: int) -> Ids:
        return np.array([(self._number, self._record(index))], IDS_DTYPE)


class ChainTracer:
    """Copies one chain, and numbers its sources in the order of the chain's text."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def copy(self, dataset: Any) -> Any:
        """Return a copy of a chain whose elements are `TracedElement`.

        Raises:
            TypeError: The records of a node's elements cannot be traced.
        """
        if dataset._KIND == "transport":
            return dataset  # The chain of its workers was copied before.
        if isinstance(dataset, InterleaveIterDataset):
            return self._trace_interleaved(dataset)
        if not dataset._parents or not is_ours(dataset):
            return self._trace_source(dataset)
        copied = with_parents(dataset, [self.copy(each) for each in dataset._parents])
        for kinds, trace in _TRACE_FUNCTIONS:
            if isinstance(dataset, kinds):
                return trace(dataset, copied)
        if isinstance(dataset, ParentSpec) or dataset._KIND in ("order", "prefetch"):
            return copied
        raise TypeError(
            f"The records of the elements of {node_line(dataset)} are not known. Call"
            " replay(state) instead, or ids of a chain without this node."
        )

    def _trace_source(self, dataset: Any) -> Any:
        if not isinstance(dataset, MapDataset):
            raise TypeError(
                f"The records of {node_line(dataset)} are not known by index. Read them"
                " from a MapDataset, or call replay(state) instead."
            )
        # Slices and copies of a dataset share these.
        shared = getattr(dataset, "_reader", getattr(dataset, "_range", dataset))
        identity = id(shared)
        number = self._numbers.setdefault(identity, len(self._numbers))
        return TracedSourceDataset(dataset, number)

    def _trace_interleaved(self, dataset: Any) -> Any:
        if isinstance(dataset.datasets, MapDataset):
            raise TypeError(
                f"{node_line(dataset)} makes its datasets when they are needed, so the"
                " numbers of their sources are not known. Pass a list of datasets."
            )
        copied = copy.copy(dataset)
        copied.datasets = [self.copy(each) for each in dataset.datasets]
        return copied


def _trace_map(dataset: Any, copied: Any) -> Any:
    call = dataset._call

    def call_traced(traced: TracedElement, *arguments: Any) -> Any:
        result = call(traced.element, *arguments)
        return None if result is None else TracedElement(result, traced.rows)

    copied._call = call_traced
    return copied


def _trace_map_with_index(dataset: Any, copied: Any) -> Any:
    call = dataset._call

    def call_traced(index: int, traced: TracedElement) -> Any:
        result = call(index, traced.element)
        return None if result is None else TracedElement(result, traced.rows)

    copied._call = call_traced
    return copied


def _trace_filter(dataset: Any, copied: Any) -> Any:
    call = dataset._call
    # Filters of an IterDataset get absent elements, too.
    copied._call = lambda traced: call(_unwrap(traced))
    return copied


def _trace_block_map(dataset: Any, copied: Any) -> Any:
    call = dataset._call

    def call_traced(elements: list[TracedElement]) -> list[Any]:
        results = call.function([each.element for each in elements])
        rows = [each.rows for each in elements]
        return [
            None if result is None else TracedElement(result, element_rows)
            for result, element_rows in zip(results, rows, strict=False)
        ]

    copied._call = BlockCall(call_traced, call.size)
    return copied


class _TracedSplits:
    """A flat map of traced elements."""

    def __init__(self, transform: Any) -> None:
        self._transform = transform

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transform, name)

    def flat_map(self, traced: TracedElement | None) -> list[TracedElement]:
        splits = self._transform.flat_map(_unwrap(traced))
        ids = [] if traced is None else [traced.ids]
        return [TracedElement(split, ids) for split in splits]


def _trace_flat_map(dataset: Any, copied: Any) -> Any:
    copied._transform = _TracedSplits(dataset._transform)
    return copied


def _trace_batch(dataset: Any, copied: Any) -> Any:
    copied._batch_fn = _trace_batch_fn(dataset._batch_fn or batching.make_batch)
    if isinstance(dataset, BatchMapDataset):
        copied._columns = copied._deferred_parent = None
    return copied


def _trace_batch_fn(
    batch_fn: Callable[[list[Any]], Any],
) -> Callable[[list[Any]], TracedElement]:
    def call_traced(elements: list[TracedElement | None]) -> TracedElement:
        return TracedElement(
            batch_fn([*map(_unwrap, elements)]), _ids_of_each(elements)
        )

    return call_traced


class _TracedBuckets:
    """Chooses buckets and makes batches of traced elements."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self.sizes = batches.sizes

    def bucket_of(self, traced: TracedElement) -> int:
        bucket: int = self._batches.bucket_of(traced.element)
        return bucket

    def batch(self, elements: list[TracedElement], bucket: int) -> TracedElement:
        plain = [each.element for each in elements]
        return TracedElement(self._batches.batch(plain, bucket), _ids_of_each(elements))


def _trace_bucket(dataset: Any, copied: Any) -> Any:
    copied._batches = _TracedBuckets(dataset._batches)
    return copied


def _trace_zip(dataset: Any, copied: Any) -> Any:
    def call_traced(elements: tuple[TracedElement | None, ...]) -> TracedElement:
        return TracedElement(tuple(map(_unwrap, elements)), [ids_of(*elements)])

    kind = MapMapDataset if isinstance(dataset, MapDataset) else MapIterDataset
    return kind(copied, call_traced)


def _trace_rebatch(dataset: Any, copied: Any) -> Any:
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


def _trace_pack(dataset: Any, copied: Any) -> Any:
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
    return _pack_ids(copied, lambda ids: ids, lambda rows: rows)


def _trace_concat_split(dataset: Any, copied: Any) -> Any:
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

    # Cells without an id are 0.
    def as_cells(ids: Ids) -> npt.NDArray[np.int64]:
        return np.stack([ids["source"], ids["key"]], axis=1) + 1

    def as_ids(cells: npt.NDArray[np.int64]) -> list[Ids]:
        pairs = cells[cells[:, 0] > 0] - 1
        return [np.array([tuple(pair) for pair in pairs.tolist()], IDS_DTYPE)]

    return _pack_ids(copied, as_cells, as_ids)


def _pack_ids(
    copied: Any, cells_of: Callable[[Ids], Any], rows_of: Callable[[Any], Sequence[Ids]]
) -> Any:
    """Return a packing node that packs ids as a feature, between nodes that trace."""

    def with_feature(traced: TracedElement) -> Any:
        return {**traced.element, IDS_FEATURE: cells_of(traced.ids)}

    def call_traced(row: Any) -> TracedElement:
        return TracedElement(row, rows_of(row.pop(IDS_FEATURE)))

    with_ids = MapIterDataset[Any](copied._parent, with_feature)
    result: IterDataset[Any] = MapIterDataset(
        with_parents(copied, [with_ids]), call_traced
    )
    return result


def _trace_planned_pack(dataset: Any, copied: Any) -> Any:
    return TracedPackDataset(dataset, copied._parent)


def _raise_not_known(dataset: Any, copied: Any) -> Any:
    raise TypeError(
        f"The records of the elements of {node_line(dataset)} are not known. Call shard"
        " with another remainder."
    )


# Each function takes a node and its copy, whose parents are traced, and returns the
# traced node. The first class that fits counts.
_TRACE_FUNCTIONS: Sequence[tuple[Any, Callable[[Any, Any], Any]]] = (
    (BlockMapBase, _trace_block_map),
    (MapWithIndexBase, _trace_map_with_index),
    (MapBase, _trace_map),
    (FilterBase, _trace_filter),
    (FlatMapBase, _trace_flat_map),
    (BatchBase, _trace_batch),
    (BucketIterDataset, _trace_bucket),
    (ZipBase, _trace_zip),
    (RebatchIterDataset, _trace_rebatch),
    (PackIterDataset, _trace_pack),
    (PackMapDataset, _trace_planned_pack),
    (ConcatThenSplitIterDataset, _trace_concat_split),
    (PadMapDataset, _raise_not_known),
)
