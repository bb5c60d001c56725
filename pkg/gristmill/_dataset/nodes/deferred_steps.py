"""Chains whose last steps leave their work to the batch that follows.

See `gristmill._base.deferred`.  Those steps are replaced in a copy of the chain.  If an
element of the copy fails, the batch is made again from the original chain, which raises
the error.
"""

from __future__ import annotations

from typing import Any

from gristmill._base.deferred import deferring
from gristmill._dataset.model.node import chain_of, is_ours, with_parents
from gristmill._dataset.nodes.iterable_source import IterableSourceDataset
from gristmill._dataset.nodes.map import (
    MapIterDataset,
    MapMapDataset,
    RandomMapIterDataset,
    RandomMapMapDataset,
)
from gristmill._dataset.nodes.source import SourceMapDataset
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._engine.program import is_own_source

_STEPS = (MapMapDataset, RandomMapMapDataset, MapIterDataset, RandomMapIterDataset)


def defer_steps(dataset: Any) -> Any:
    """Return a copy of a chain whose last steps leave their work to a batch.

    Returns None if no step can defer its work, or if the chain has the user's own
    iterators, whose states Gristmill cannot interpret.
    """
    for node in chain_of(dataset):
        if not is_ours(node) or isinstance(node, IterableSourceDataset):
            return None
    return _copy(dataset)


def _copy(dataset: Any) -> Any:
    """Return the copy of a chain; None if its last step cannot defer its work."""
    if _is_selection(dataset):
        parent = _copy(dataset._parent)
        return None if parent is None else with_parents(dataset, [parent])
    call = deferring(dataset._transform) if type(dataset) in _STEPS else None
    if call is None:
        return None
    copied = with_parents(dataset, [_copy(dataset._parent) or dataset._parent])
    copied._call = call
    return copied


def _is_selection(dataset: Any) -> bool:
    """Return whether a node is ours and returns its parent's elements unchanged."""
    return bool(dataset._IS_SELECTION) and is_ours(dataset)


def can_compute_ahead(dataset: Any) -> bool:
    """Return whether a thread may compute a batch while the caller uses the last one.

    This requires that no user code runs and that most of the work releases the GIL.
    The chain must consist of one of our sources, steps that defer their work, their
    batch, and nodes that order elements.
    """
    node, nodes = dataset, []
    while node._KIND != "batch" and _is_selection(node):
        nodes.append(node)
        node = node._parent
    if (
        not hasattr(node, "_batch_fn")
        or node._batch_fn is not None
        or not is_ours(node)
    ):
        return False
    steps = 0
    node = node._parent
    while _is_selection(node) or (type(node) in _STEPS and deferring(node._transform)):
        nodes.append(node)
        steps += type(node) in _STEPS
        node = node._parent
    options = [
        each._read_options for each in nodes if type(each) is PrefetchIterDataset
    ]
    # 0 threads or no buffer: the user does not want elements to be read ahead.
    if not steps or not all(o.num_threads and o.prefetch_buffer_size for o in options):
        return False
    return type(node) is SourceMapDataset and is_own_source(node._reader)
