"""Returns facts about a node that reports, drawings and measurements need."""

from __future__ import annotations

import itertools
from typing import Any

from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import Kind, chain_of
from gristmill._dataset.nodes.batch import BatchBase
from gristmill._dataset.nodes.record_batches import records_of
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._engine.native_batches import has_batches

MAX_NODES = 100  # Chains with more nodes are long; see `is_long`.


def kind_of(dataset: Any) -> Kind:
    """Return the kind of a node; see `Kind`."""
    kind: Kind | None = dataset._KIND
    return kind or ("transform" if dataset._parents else "read")


def parents_of(dataset: Any) -> tuple[Any, ...]:
    """Return a node's parents; for a node with workers, the chain in the workers."""
    if dataset._KIND == "transport":
        return (dataset.in_workers,)
    return tuple(dataset._parents)


def is_long(dataset: Any) -> bool:
    """Return whether a chain has too many nodes to show or measure each."""
    beyond = itertools.islice(chain_of(dataset), MAX_NODES, None)
    return next(beyond, None) is not None


def makes_native_batches(dataset: Any) -> bool:
    """Return whether a node makes batches of records without its parents' elements."""
    if not isinstance(dataset, BatchBase) or dataset._batch_fn is not None:
        return False
    parent = dataset._parent
    if isinstance(parent, PrefetchIterDataset):
        parent = parent._parent
    records = records_of(parent) if isinstance(parent, MapDataset) else None
    return records is not None and has_batches(records.source, records.maps)
