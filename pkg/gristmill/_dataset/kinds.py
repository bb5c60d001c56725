"""What nodes do, in the words of reports."""

from __future__ import annotations

from typing import Any, Literal

from gristmill._dataset.base import IterDataset
from gristmill._dataset.batch import Batching
from gristmill._dataset.mix import MixedIterDataset, SelectingMapDataset
from gristmill._dataset.order import IndexMapDataset
from gristmill._dataset.to_iter import PrefetchIterDataset

Kind = Literal["read", "order", "transform", "batch", "prefetch", "transport"]
_ORDERING = (IndexMapDataset, SelectingMapDataset, MixedIterDataset)


def kind_of(dataset: Any) -> Kind:
    """What a node does.

    "read" gets elements from outside, "order" says which one comes when, "transform" runs
    somebody's function, "batch" groups, "prefetch" works ahead with threads, and
    "transport" gets elements from worker processes.
    """
    if runs_parents_in_workers(dataset):
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


def runs_parents_in_workers(dataset: Any) -> bool:
    """Whether what a node is made of runs in worker processes."""
    elsewhere = getattr(type(dataset), "_PARENTS_RUN_IN_WORKERS", False)
    return bool(elsewhere) and isinstance(dataset, IterDataset)
