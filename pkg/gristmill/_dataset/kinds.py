"""What nodes do, in the words of reports."""

from __future__ import annotations

from typing import Any, Literal

from gristmill._dataset.base import MapDataset
from gristmill._dataset.batch import Batching
from gristmill._dataset.concat_split import ConcatThenSplitIterDataset
from gristmill._dataset.interleave import InterleaveIterDataset
from gristmill._dataset.limit import LimitIterDataset
from gristmill._dataset.mix import MixedIterDataset, SelectingMapDataset
from gristmill._dataset.order import IndexMapDataset
from gristmill._dataset.packing import PackIterDataset
from gristmill._dataset.process_prefetch import ProcessPrefetchIterDataset
from gristmill._dataset.rebatch import RebatchIterDataset
from gristmill._dataset.repeat import RepeatIterDataset
from gristmill._dataset.rows import Rows
from gristmill._dataset.thread_prefetch import ThreadPrefetchIterDataset
from gristmill._dataset.to_iter import PrefetchIterDataset
from gristmill._dataset.window_shuffle import (
    WindowShuffleIterDataset,
    WindowShuffleMapDataset,
)
from gristmill._dataset.zip import ZipIterDataset, ZipMapDataset

Kind = Literal["read", "order", "transform", "batch", "prefetch", "transport"]
_KINDS: tuple[tuple[Kind, tuple[type, ...]], ...] = (
    ("transport", (ProcessPrefetchIterDataset,)),
    ("prefetch", (PrefetchIterDataset, ThreadPrefetchIterDataset)),
    (
        "batch",
        (Batching, ConcatThenSplitIterDataset, PackIterDataset, RebatchIterDataset),
    ),
    (
        "order",
        (
            IndexMapDataset,
            InterleaveIterDataset,
            LimitIterDataset,
            MixedIterDataset,
            RepeatIterDataset,
            SelectingMapDataset,
            WindowShuffleIterDataset,
            WindowShuffleMapDataset,
            ZipIterDataset,
            ZipMapDataset,
        ),
    ),
)


def kind_of(dataset: Any) -> Kind:
    """What a node does.

    "read" gets elements from outside, "order" says which one comes when, "transform"
    runs somebody's function, "batch" groups or packs, "prefetch" works ahead with
    threads, and "transport" gets elements from worker processes.
    """
    for kind, classes in _KINDS:
        if isinstance(dataset, classes):
            return kind
    return "transform" if getattr(dataset, "_parents", ()) else "read"


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
