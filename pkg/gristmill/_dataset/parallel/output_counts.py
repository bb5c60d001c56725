"""Returns the number of outputs of a chain before a state, if the state has it."""

from __future__ import annotations

from typing import Any

from gristmill._dataset.model.node import ParentSpec, is_ours
from gristmill._dataset.nodes.batch import BatchIterDataset
from gristmill._dataset.nodes.counted_mix import CountedMixIterDataset
from gristmill._dataset.nodes.epochs import EpochIterDataset
from gristmill._dataset.nodes.map import (
    FilterIterDataset,
    MapIterDataset,
    MapWithIndexIterDataset,
    RandomMapIterDataset,
)
from gristmill._dataset.nodes.mix import MixedIterDataset
from gristmill._dataset.nodes.packing import PackIterDataset
from gristmill._dataset.nodes.repeat import (
    CacheIterDataset,
    LimitIterDataset,
    RepeatIterDataset,
)
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.nodes.window_shuffle import WindowShuffleIterDataset
from gristmill._dataset.parallel.index_counts import is_sparse


def count_outputs(node: Any, state: Any) -> int | None:
    """Return the number of outputs of a node before a state, or None if unknown."""
    if isinstance(node, PrefetchIterDataset) and not is_sparse(node._parent):
        return int(state["next_index"])
    if isinstance(node, CountedMixIterDataset):
        return int(state["index"])
    if isinstance(node, MixedIterDataset):
        return int(state["index"]) - bool(state["stop"])
    if isinstance(node, PackIterDataset):
        return int(state["counter"])
    for kind, name in _COUNTERS:
        if isinstance(node, kind):
            return int(state[name])
    if isinstance(node, BatchIterDataset):
        count = count_outputs(node._parent, state)
        return None if count is None else count // node._batch_size
    passes = isinstance(node, ParentSpec) and not isinstance(node, _CHANGES_COUNT)
    if (passes and is_ours(node)) or isinstance(node, MapIterDataset):
        return count_outputs(node._parent, state) if node._parents else None
    return None


_COUNTERS = (
    (LimitIterDataset, "count_elements_read"),
    (MapWithIndexIterDataset, "counter"),
    (RandomMapIterDataset, "index_for_rng"),
)
_CHANGES_COUNT = (
    CacheIterDataset,
    EpochIterDataset,
    FilterIterDataset,
    RepeatIterDataset,
    WindowShuffleIterDataset,
    PrefetchIterDataset,
)
