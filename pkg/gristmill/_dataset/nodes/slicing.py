"""Cuts a chain of datasets into parts, one for each stream.

Part w of W has every W-th element of each `MapDataset` that the chain iterates over,
from w on.  With ``sequential=True`` it has the w-th contiguous piece of each source.
"""

from __future__ import annotations

import copy
from typing import Any

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import chain_of, with_parents
from gristmill._dataset.nodes.iterable_source import IterableSourceDataset
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill.sharding import ShardOptions, even_split


def check_parts(dataset: IterDataset[Any], parts: int) -> None:
    """Raise ValueError if an iterable of a chain cannot be split into parts."""
    for node in chain_of(dataset):
        if isinstance(node, IterableSourceDataset):
            node.check_parts(parts)


def slice_chain(
    dataset: IterDataset[Any], part: int, parts: int, sequential: bool
) -> IterDataset[Any]:
    """Return one part of a chain; `sequential` cuts sources into contiguous pieces."""
    if parts == 1:
        return dataset
    part_chain: IterDataset[Any] = _slice(dataset, slice(part, None, parts), sequential)
    return part_chain


def _slice(dataset: Any, sl: slice, sequential: bool) -> Any:
    """Return part w of W of a dataset of either kind; `sl` is slice(w, None, W)."""
    if isinstance(dataset, PrefetchIterDataset):
        parent = dataset._parent
        if sequential:
            return with_parents(dataset, [_slice(parent, sl, sequential)])
        return with_parents(dataset, [parent.slice(sl)])
    if dataset._SLICEABLE:
        shard = ShardOptions(shard_index=sl.start, shard_count=sl.step)
        return dataset.slice(slice(*even_split(len(dataset), shard)))
    if callable(getattr(dataset, "set_slice", None)):
        part = copy.copy(dataset)
        part.set_slice(sl, sequential)
        return part
    if not dataset._parents:
        kind = "MapDataset" if isinstance(dataset, MapDataset) else "IterDataset"
        raise ValueError(
            f"Cannot slice `{kind}` source. {type(dataset)} Give it a method"
            " set_slice(sl, sequential_slice) that keeps only the elements of a slice,"
            " or use one worker."
        )
    parents = [_slice(parent, sl, sequential) for parent in dataset._parents]
    return with_parents(dataset, parents)
