"""Finds the chains whose iterations are counted: each repeats a random order."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from gristmill._base.epoch_context import epoch_context
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.nodes.epochs import EpochIterDataset
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._observe.kinds import parents_of
from gristmill._observe.passes import PassCounter

_REPEATED = (
    "{} is iterated over again, with the same shuffles and random draws as before."
    " Iterate over dataset.at_epoch(epoch) to get those of another epoch, or over"
    " dataset.at_epoch(0) to repeat these on purpose."
)
_REPEATED_IN_LOADER = (
    "{} is iterated over again by a torch loader, in the same order as before. Call"
    " loader.set_epoch(epoch) before each epoch if the dataset is an AsIterable."
    " Otherwise iterate over chain.at_epoch(epoch) in your IterableDataset, or over"
    " chain.at_epoch(0) to repeat this order on purpose."
)


class _ChainPasses(NamedTuple):
    """A chain's iterations, and whether the order of its elements is random."""

    counter: PassCounter
    has_order: bool


# By dataset; the value is None if iterations do not repeat anything random.
_passes_by_dataset: weakref.WeakKeyDictionary[Any, _ChainPasses | None] = (
    weakref.WeakKeyDictionary()
)


def pass_counter_of(dataset: Any) -> PassCounter | None:
    """Return the counter of iterations over a chain that each repeat a random order.

    Returns None if they repeat nothing random: if nothing in the chain is random, or it
    has several epochs, or its epoch was chosen.
    """
    if type(dataset) is PrefetchIterDataset:
        # `iter` of a `MapDataset` makes another node each time.
        dataset = dataset._parent
    try:
        if dataset not in _passes_by_dataset:
            _passes_by_dataset[dataset] = _analyze(dataset)
        chain_passes = _passes_by_dataset[dataset]
    except TypeError:
        return None  # A user's class without a hash.
    if chain_passes is None:
        return None
    # In a torch loader, random steps draw other numbers in each epoch, so only an order
    # can repeat.
    if epoch_context.epoch:
        if not chain_passes.has_order or not epoch_context.warns:
            return None
        chain_passes.counter.text = _REPEATED_IN_LOADER.format(dataset)
        if epoch_context.epoch == 1:
            chain_passes.counter.count()  # A worker of the first epoch may have ended.
    return chain_passes.counter


def _analyze(dataset: Any) -> _ChainPasses | None:
    nodes = list(_nodes_of(dataset))
    has_chosen_epoch = any(isinstance(node, EpochIterDataset) for node in nodes)
    has_several_epochs = any(getattr(node, "_num_epochs", 1) != 1 for node in nodes)
    random_kinds = {node._random for node in nodes} - {None}
    if has_chosen_epoch or has_several_epochs or not random_kinds:
        return None
    return _ChainPasses(PassCounter(_REPEATED.format(dataset)), "order" in random_kinds)


def _nodes_of(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and all nodes above it, also those in workers.

    The first one of several datasets that are interleaved stands for all.
    """
    nodes = [dataset]
    for node in nodes:
        yield node
        nodes += parents_of(node)
        parts = getattr(node, "datasets", ())
        if isinstance(parts, MapDataset):
            nodes.append(parts)
        elif isinstance(parts, (list, tuple)):
            nodes += parts[:1]
