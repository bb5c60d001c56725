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
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset


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
    if isinstance(node, ProcessPrefetchIterDataset):
        return _count_of_streams(node, state)
    for kind, name in _COUNTERS:
        if isinstance(node, kind):
            return int(state[name])
    if isinstance(node, BatchIterDataset):
        count = count_outputs(node._parent, state)
        if count is None:
            return None
        whole, rest = divmod(count, node._batch_size)
        return whole + (rest > 0 and not node._drop_remainder)
    passes = isinstance(node, ParentSpec) and not isinstance(node, _CHANGES_COUNT)
    if (passes and is_ours(node)) or isinstance(node, MapIterDataset):
        return count_outputs(node._parent, state) if node._parents else None
    return None


def _count_of_streams(node: Any, state: Any) -> int | None:
    counts = [
        count_outputs(node.in_workers, each) if each else 0
        for each in state["iterators_in_use_states"]
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


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
