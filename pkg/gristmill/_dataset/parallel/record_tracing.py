"""Copies chains so that each element carries the ids of the records it is made of.

The copy of a source wraps each element in a `TracedElement`.  The copies of steps and
batches unwrap elements for the user's functions.  Other nodes do not change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gristmill import batching
from gristmill._base.types import Indices
from gristmill._dataset.model.blocks import BlockMapDataset, block_of
from gristmill._dataset.model.error_notes import record_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.node import ParentSpec, with_parents
from gristmill._dataset.model.token_count import token_counter
from gristmill._dataset.nodes.batch import BatchBase, BatchMapDataset
from gristmill._dataset.nodes.block_map import BlockMapBase
from gristmill._dataset.nodes.bucket import BucketIterDataset
from gristmill._dataset.nodes.concat_split import ConcatThenSplitIterDataset
from gristmill._dataset.nodes.counted_mix import CountedMixIterDataset
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
from gristmill._dataset.parallel.source_list import SourceList, is_source, parts_of
from gristmill._dataset.parallel.traced_element import (
    IDS_DTYPE,
    Ids,
    TracedElement,
    ids_of,
)
from gristmill._dataset.parallel.traced_packing import (
    trace_concat_split,
    trace_pack,
    trace_rebatch,
)
from gristmill._hot.block_call import BlockCall


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
        sources: The sources of the chain.
    """

    def __init__(self, source: Any, sources: SourceList) -> None:
        super().__init__()
        self._traced_source = source
        self._sources = sources
        self._number = sources.number_of(source)
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
        key: Any = self._record(index)
        epoch = index // len(self)
        end = self._sources.length_of(self._number, key)
        return np.array([(self._number, key, epoch, 0, end)], IDS_DTYPE)


class ChainTracer:
    """Copies a chain, or a part of it.

    Args:
        sources: The sources of the whole chain.
    """

    def __init__(self, sources: SourceList) -> None:
        self._sources = sources

    def copy(self, dataset: Any) -> Any:
        """Return a copy of a chain whose elements are `TracedElement`.

        Raises:
            TypeError: The records of a node's elements cannot be traced.
        """
        if dataset._KIND == "transport":
            return dataset  # The chain of its workers was copied before.
        if isinstance(dataset, InterleaveIterDataset):
            return self._trace_interleaved(dataset)
        if is_source(dataset):
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
        return TracedSourceDataset(dataset, self._sources)

    def _trace_interleaved(self, dataset: Any) -> Any:
        copied = copy.copy(dataset)
        copied.datasets = [self.copy(each) for each in parts_of(dataset)]
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


def _trace_counted_mix(dataset: Any, copied: Any) -> Any:
    count_tokens = token_counter(dataset._tokens)

    def count_traced(traced: TracedElement) -> int:
        tokens = count_tokens(traced.element)
        traced.set_length(tokens)
        return tokens

    copied._tokens = count_traced
    return copied


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
    (CountedMixIterDataset, _trace_counted_mix),
    (RebatchIterDataset, trace_rebatch),
    (PackIterDataset, trace_pack),
    (PackMapDataset, _trace_planned_pack),
    (ConcatThenSplitIterDataset, trace_concat_split),
    (PadMapDataset, _raise_not_known),
)
