"""Copies chains so that each element carries the ids of the records it is made of.

The copy of a source wraps each element in a `Traced`; the copies of steps and batches
call the user's functions with the elements inside.  Nodes that only order elements are
copied as they are.
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
from gristmill._dataset.model.failing import record_of
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.names import line_of
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
from gristmill._dataset.nodes.rebatch import RebatchIterDataset
from gristmill._dataset.nodes.shard import PadMapDataset
from gristmill._dataset.nodes.zip import ZipBase
from gristmill._hot import tree
from gristmill._hot.block_call import BlockCall

# The number of a record's source in the chain, and what the source is asked for.
Ids = npt.NDArray[np.void]
IDS_DTYPE = np.dtype([("source", np.int64), ("key", np.int64)])
# The feature of packed elements that has their ids.
FEATURE = "gristmill_ids"
# The most ids of a row that is cut out of elements laid end to end.
MOST_IDS_OF_ROW = 1 << 16


class Traced:
    """An element with the ids of its records.

    Attributes:
        element: The element.
        rows: The ids of each of its rows, or of the one element that it is.
    """

    __slots__ = ("element", "rows")

    def __init__(self, element: Any, rows: Sequence[Ids]) -> None:
        self.element = element
        self.rows = rows

    @property
    def ids(self) -> Ids:
        """The ids of all records, of shape (n,) and dtype `IDS_DTYPE`."""
        return ids_of(self)


def ids_of(*elements: Traced | None) -> Ids:
    """Return the ids of all records of some elements; None for an absent one."""
    rows = [row for each in elements if each is not None for row in each.rows]
    return np.concatenate([np.empty(0, IDS_DTYPE), *rows])


def _plain(traced: Traced | None) -> Any:
    """Return the element inside; None if it is absent."""
    return None if traced is None else traced.element


def _joined(elements: Iterable[Traced | None]) -> list[Ids]:
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
        found = record_of(self._traced_source, index)
        return index % len(self) if found is None else found

    def _block(self, indices: Indices) -> list[Any]:
        elements = block_of(self._traced_source, indices)
        return [
            None if element is None else Traced(element, [self._id_of(index)])
            for element, index in zip(elements, indices.tolist(), strict=True)
        ]

    def _id_of(self, index: int) -> Ids:
        return np.array([(self._number, self._record(index))], IDS_DTYPE)


class Tracing:
    """Copies one chain, and numbers its sources in the order of the chain's text."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def copy(self, dataset: Any) -> Any:
        """Return a copy of a chain whose elements are `Traced`.

        Raises:
            TypeError: The records of a node's elements are not known.
        """
        if dataset._KIND == "transport":
            return dataset  # What its workers compute was copied before.
        if isinstance(dataset, InterleaveIterDataset):
            return self._interleaved(dataset)
        if not dataset._parents or not is_ours(dataset):
            return self._source(dataset)
        made = with_parents(dataset, [self.copy(each) for each in dataset._parents])
        for kinds, trace in _RULES:
            if isinstance(dataset, kinds):
                return trace(dataset, made)
        if isinstance(dataset, ParentSpec) or dataset._KIND in ("order", "prefetch"):
            return made
        raise TypeError(
            f"The records of the elements of {line_of(dataset)} are not known. Call"
            " replay(state) instead, or ids of a chain without this node."
        )

    def _source(self, dataset: Any) -> Any:
        if not isinstance(dataset, MapDataset):
            raise TypeError(
                f"The records of {line_of(dataset)} are not known by index. Read them"
                " from a MapDataset, or call replay(state) instead."
            )
        # Slices and copies of a dataset share these.
        shared = getattr(dataset, "_reader", getattr(dataset, "_range", dataset))
        identity = id(shared)
        number = self._numbers.setdefault(identity, len(self._numbers))
        return TracedSourceDataset(dataset, number)

    def _interleaved(self, dataset: Any) -> Any:
        if isinstance(dataset.datasets, MapDataset):
            raise TypeError(
                f"{line_of(dataset)} makes its datasets when they are needed, so the"
                " numbers of their sources are not known. Pass a list of datasets."
            )
        made = copy.copy(dataset)
        made.datasets = [self.copy(each) for each in dataset.datasets]
        return made


def _map(dataset: Any, made: Any) -> Any:
    call = dataset._call

    def traced(traced: Traced, *more: Any) -> Any:
        result = call(traced.element, *more)
        return None if result is None else Traced(result, traced.rows)

    made._call = traced
    return made


def _map_with_index(dataset: Any, made: Any) -> Any:
    call = dataset._call

    def traced(index: int, traced: Traced) -> Any:
        result = call(index, traced.element)
        return None if result is None else Traced(result, traced.rows)

    made._call = traced
    return made


def _filter(dataset: Any, made: Any) -> Any:
    call = dataset._call
    # Filters of an IterDataset get absent elements, too.
    made._call = lambda traced: call(_plain(traced))
    return made


def _block_map(dataset: Any, made: Any) -> Any:
    call = dataset._call

    def traced(elements: list[Traced]) -> list[Any]:
        results = call.function([each.element for each in elements])
        rows = [each.rows for each in elements]
        return [
            None if result is None else Traced(result, own)
            for result, own in zip(results, rows, strict=False)
        ]

    made._call = BlockCall(traced, call.size)
    return made


class _TracedSplits:
    """A flat map of traced elements."""

    def __init__(self, transform: Any) -> None:
        self._transform = transform

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transform, name)

    def flat_map(self, traced: Traced | None) -> list[Traced]:
        splits = self._transform.flat_map(_plain(traced))
        ids = [] if traced is None else [traced.ids]
        return [Traced(split, ids) for split in splits]


def _flat_map(dataset: Any, made: Any) -> Any:
    made._transform = _TracedSplits(dataset._transform)
    return made


def _batch(dataset: Any, made: Any) -> Any:
    made._batch_fn = _batching(dataset._batch_fn or batching.make_batch)
    if isinstance(dataset, BatchMapDataset):
        made._columns = made._deferred_parent = None
    return made


def _batching(batch_fn: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Traced]:
    def traced(elements: list[Traced | None]) -> Traced:
        return Traced(batch_fn([*map(_plain, elements)]), _joined(elements))

    return traced


class _TracedBuckets:
    """Chooses buckets and makes batches of traced elements."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self.sizes = batches.sizes

    def bucket_of(self, traced: Traced) -> int:
        bucket: int = self._batches.bucket_of(traced.element)
        return bucket

    def batch(self, elements: list[Traced], bucket: int) -> Traced:
        plain = [each.element for each in elements]
        return Traced(self._batches.batch(plain, bucket), _joined(elements))


def _bucket(dataset: Any, made: Any) -> Any:
    made._batches = _TracedBuckets(dataset._batches)
    return made


def _zip(dataset: Any, made: Any) -> Any:
    def traced(elements: tuple[Traced | None, ...]) -> Traced:
        return Traced(tuple(map(_plain, elements)), [ids_of(*elements)])

    kind = MapMapDataset if isinstance(dataset, MapDataset) else MapIterDataset
    return kind(made, traced)


def _rebatch(dataset: Any, made: Any) -> Any:
    def with_feature(traced: Traced) -> Any:
        leaves, _ = tree.flatten(traced.element, batching.tree_rules())
        rows = [*traced.rows]
        if len(rows) == 1:  # One record has all rows.
            rows *= len(leaves[0])
        if len(rows) != len(leaves[0]):
            raise TypeError(
                f"{line_of(dataset)} gets batches of {len(leaves[0])} rows that are"
                f" made of {len(rows)} elements, so the records of a row are not known."
                " Call replay(state) instead."
            )
        ids = np.empty(len(rows), np.object_)
        ids[:] = rows
        return {"element": traced.element, FEATURE: ids}

    def traced(batch: Any) -> Traced:
        return Traced(batch["element"], batch[FEATURE].tolist())

    above = MapIterDataset(made._parent, with_feature)
    return MapIterDataset(with_parents(made, [above]), traced)


def _pack(dataset: Any, made: Any) -> Any:
    layout = dataset._layout
    column = 3 * len(layout.lengths) + len(layout.meta_keys)
    more: dict[str, Any] = {}
    if layout.column_keys is not None:
        more["column_keys"] = (*layout.column_keys, FEATURE)
    else:
        more["assemble"] = lambda leaves: {
            **layout.assemble(leaves[:-1]),
            FEATURE: leaves[-1],
        }
    made._layout = dataclasses.replace(
        layout,
        meta_keys=(*layout.meta_keys, FEATURE),
        columns=(*layout.columns, column),
        **more,
    )
    return _with_feature(made, lambda ids: ids, lambda found: found)


def _concat_split(dataset: Any, made: Any) -> Any:
    layout = dataset._layout
    keys = (*layout.keys, FEATURE)
    whole = (*layout.whole, True)
    metas = [key for key, each in zip(keys, whole, strict=True) if each]
    columns = columns_of(keys, metas)
    made._layout = dataclasses.replace(
        layout,
        keys=keys,
        lengths=(*layout.lengths, MOST_IDS_OF_ROW),
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

    return _with_feature(made, as_cells, as_ids)


def _with_feature(
    made: Any, cells_of: Callable[[Ids], Any], rows_of: Callable[[Any], Sequence[Ids]]
) -> Any:
    """Return a packing node that packs ids as a feature, between nodes that trace."""

    def with_feature(traced: Traced) -> Any:
        return {**traced.element, FEATURE: cells_of(traced.ids)}

    def traced(row: Any) -> Traced:
        return Traced(row, rows_of(row.pop(FEATURE)))

    above = MapIterDataset[Any](made._parent, with_feature)
    below: IterDataset[Any] = MapIterDataset(with_parents(made, [above]), traced)
    return below


def _refuse(dataset: Any, made: Any) -> Any:
    raise TypeError(
        f"The records of the elements of {line_of(dataset)} are not known. Call shard"
        " with another remainder."
    )


# The function that traces the copy of a node: that of the first class that fits.
_RULES: Sequence[tuple[Any, Callable[[Any, Any], Any]]] = (
    (BlockMapBase, _block_map),
    (MapWithIndexBase, _map_with_index),
    (MapBase, _map),
    (FilterBase, _filter),
    (FlatMapBase, _flat_map),
    (BatchBase, _batch),
    (BucketIterDataset, _bucket),
    (ZipBase, _zip),
    (RebatchIterDataset, _rebatch),
    (PackIterDataset, _pack),
    (ConcatThenSplitIterDataset, _concat_split),
    (PadMapDataset, _refuse),
)
