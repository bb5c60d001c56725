"""Counts the epochs of a loader, in which random steps of Gristmill's datasets draw.

Torch's loaders have no epochs, so iterations are counted.  `set_epoch` of a loader or
of its sampler sets another number.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, SequentialSampler

from gristmill._base import log
from gristmill._base.epoch_context import check_epoch, epoch_context

# The attribute of a loader that contains its `Epochs`.
_ATTRIBUTE = "_gristmill_epochs"
# Epochs in requests are less than this.
_MAX_EPOCH = 1 << 63


@dataclasses.dataclass(frozen=True)
class Epochs:
    """The epochs of a loader.  Copies of the loader share this object.

    Attributes:
        latest: The epoch of the latest iteration; -1 before the first.
        chosen: The epoch of the next iteration, if `set_epoch` was called.
        of_sampler: The sampler's epoch when the latest iteration began; None if the
            sampler has no epoch.
    """

    latest: int = -1
    chosen: int | None = None
    of_sampler: int | None = None


def begin(loader: Any) -> int:
    """Count an iteration over a loader, and return its epoch."""
    epoch = next_epoch(loader)
    setattr(loader, _ATTRIBUTE, Epochs(epoch, None, _sampler_epoch(loader)))
    if draw_epoch(epoch) == 1:  # The first epoch that repeats the order of another.
        _warn_of_fixed_order(loader)
    return epoch


def next_epoch(loader: Any) -> int:
    """Return the epoch of the next iteration over a loader."""
    previous = _epochs_of(loader)
    sampler_epoch = _sampler_epoch(loader)
    if previous.chosen is not None:
        return previous.chosen
    if sampler_epoch is not None and sampler_epoch != previous.of_sampler:
        return sampler_epoch
    return previous.latest + 1


def resume(loader: Any, epoch: int, finished: bool) -> int:
    """Resume a saved iteration over a loader, and return its epoch.

    If the saved iteration was finished, an epoch chosen by `set_epoch` applies to the
    iteration after it.
    """
    chosen = _epochs_of(loader).chosen if finished else None
    setattr(loader, _ATTRIBUTE, Epochs(epoch, chosen, _sampler_epoch(loader)))
    return epoch


def set_next_epoch(loader: Any, epoch: Any) -> None:
    """Set the next iteration's epoch in a loader, its samplers and its dataset."""
    epoch = check_epoch(epoch)
    for part in (*_samplers(loader), loader.dataset):
        if callable(set_epoch := getattr(part, "set_epoch", None)):
            set_epoch(epoch)
    setattr(loader, _ATTRIBUTE, dataclasses.replace(_epochs_of(loader), chosen=epoch))


def draw_epoch(epoch: int) -> int:
    """Return the epoch for random steps; 0 if the program has no Gristmill dataset."""
    # A program with such a dataset has imported this module.
    return epoch % _MAX_EPOCH if "gristmill._dataset" in sys.modules else 0


def fetch_in_epoch(fetch: Callable[[Any], Any], epoch: int) -> Callable[[Any], Any]:
    """Return a fetch that computes batches with the random draws of an epoch."""
    number = draw_epoch(epoch)
    return functools.partial(_call_in_epoch, number, fetch) if number else fetch


def _call_in_epoch(epoch: int, fetch: Callable[[Any], Any], batch: Any) -> Any:
    # Does the same as `use_epoch`, in less time.
    outer_epoch, epoch_context.epoch = epoch_context.epoch, epoch
    try:
        return fetch(batch)
    finally:
        epoch_context.epoch = outer_epoch


def _warn_of_fixed_order(loader: Any) -> None:
    """Warn if only the dataset shuffles, because its order is the same in each epoch.

    A slice of a shuffled dataset does not count: it selects elements, such as a
    validation set, and their order may not matter.
    """
    from gristmill._dataset.model.map_dataset import MapDataset
    from gristmill._dataset.nodes.order import ShuffleMapDataset, SliceMapDataset

    dataset, batch_sampler = loader.dataset, loader.batch_sampler
    is_batched_by_torch = batch_sampler is None or type(batch_sampler) is BatchSampler
    is_in_order = type(loader.sampler) is SequentialSampler and is_batched_by_torch
    if not isinstance(dataset, MapDataset) or not is_in_order:
        return
    node: Any = dataset
    while len(node.parents) == 1 and not isinstance(node, SliceMapDataset):
        if isinstance(node, ShuffleMapDataset):
            log.warning(
                "The order of %s is the same in each epoch of a torch loader without"
                " shuffle=True: shuffle() draws only one order. Pass shuffle=True to"
                " the loader.",
                dataset,
            )
            return
        node = node._parent


def _epochs_of(loader: Any) -> Epochs:
    known: Epochs = getattr(loader, _ATTRIBUTE, Epochs())
    return known


def _samplers(loader: Any) -> Iterator[Any]:
    """Yield the samplers of a loader, each once."""
    outer = loader.batch_sampler
    inner = getattr(outer, "sampler", None)
    yield outer
    yield inner
    if loader.sampler is not inner:
        yield loader.sampler


def _sampler_epoch(loader: Any) -> int | None:
    for sampler in _samplers(loader):
        epoch = getattr(sampler, "epoch", None)
        if type(epoch) is int and hasattr(sampler, "set_epoch"):
            return epoch
    return None
