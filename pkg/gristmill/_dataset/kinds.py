"""What nodes do, in the words of reports."""

from __future__ import annotations

from typing import Any, Literal

from gristmill._dataset.base import MapDataset
from gristmill._dataset.batch import Batching
from gristmill._dataset.mix import MixedIterDataset, SelectingMapDataset
from gristmill._dataset.order import IndexMapDataset
from gristmill._dataset.process_prefetch import ProcessPrefetchIterDataset
from gristmill._dataset.rows import Rows
from gristmill._dataset.to_iter import PrefetchIterDataset

Kind = Literal["read", "order", "transform", "batch", "prefetch", "transport"]
_ORDERING = (IndexMapDataset, SelectingMapDataset, MixedIterDataset)


def kind_of(dataset: Any) -> Kind:
    """What a node does.

    "read" gets elements from outside, "order" says which one comes when, "transform"
    runs somebody's function, "batch" groups, "prefetch" works ahead with threads, and
    "transport" gets elements from worker processes.
    """
    if isinstance(dataset, ProcessPrefetchIterDataset):
        return "transport"
    if not dataset._parents:
        return "read"
    if isinstance(dataset, _ORDERING):
        return "order"
    if isinstance(dataset, Batching):
        return "batch"
    if isinstance(dataset, PrefetchIterDataset):
        return "prefetch"
    return "transform"



def parents_of(dataset: Any) -> tuple[Any, ...]:
    """What a node is made of; of one that has workers, what these compute."""
    if isinstance(dataset, ProcessPrefetchIterDataset):
        return (dataset.in_workers,)
    return tuple(dataset._parents)


def gathers(dataset: Any) -> bool:
    """Whether a node takes batches of an array's rows at once, without its parents."""
    if not isinstance(dataset, Batching) or dataset._batch_fn is not None:
        return False
    parent = dataset._parent
    if isinstance(parent, PrefetchIterDataset):
        parent = parent._parent
    return isinstance(parent, MapDataset) and Rows.of(parent) is not None
