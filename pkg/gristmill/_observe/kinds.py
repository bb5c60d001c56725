"""What nodes do, in the words of reports."""

from __future__ import annotations

from typing import Any, Literal

from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.nodes.batch import Batching
from gristmill._dataset.nodes.concat_split import ConcatThenSplitIterDataset
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.limit import LimitIterDataset
from gristmill._dataset.nodes.mix import MixedIterDataset, SelectingMapDataset
from gristmill._dataset.nodes.order import IndexMapDataset
from gristmill._dataset.nodes.packing import PackIterDataset
from gristmill._dataset.nodes.rebatch import RebatchIterDataset
from gristmill._dataset.nodes.repeat import RepeatIterDataset
from gristmill._dataset.nodes.rows import Rows
from gristmill._dataset.nodes.thread_prefetch import ThreadPrefetchIterDataset
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.nodes.window_shuffle import (
    WindowShuffleIterDataset,
    WindowShuffleMapDataset,
)
from gristmill._dataset.nodes.zip import ZipIterDataset, ZipMapDataset
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset

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
