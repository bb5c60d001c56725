"""Which epoch of a loader begins, in which random steps of Gristmill's datasets draw.

Torch's loaders have no epochs, so iterations are counted.  A loader's `set_epoch`, or
that of its sampler, says another number.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, SequentialSampler

from gristmill._base import log
from gristmill._base.epochs import checked_epoch, here

# The attribute of a loader that has its `Epochs`.
_NAME = "_gristmill_epochs"
# Of numbers that fit into a request.
_MOST = 1 << 63


@dataclasses.dataclass(frozen=True)
class Epochs:
    """What is known of a loader's epochs.  Copies of a loader share it.

    Attributes:
        latest: Of the last iteration that began; -1 before the first.
        chosen: Of the next one, if `set_epoch` has said it.
        of_sampler: What the sampler had for an epoch then; None if it has none.
    """

    latest: int = -1
    chosen: int | None = None
    of_sampler: int | None = None


def begin(loader: Any) -> int:
    """Count an iteration over a loader; returns its epoch."""
    known = _known(loader)
    of_sampler = _of_sampler(loader)
    if known.chosen is not None:
        epoch = known.chosen
    elif of_sampler is not None and of_sampler != known.of_sampler:
        epoch = of_sampler
    else:
        epoch = known.latest + 1
    setattr(loader, _NAME, Epochs(epoch, None, of_sampler))
    if told(epoch) == 1:
        _warn_of_order(loader)
    return epoch


def resume(loader: Any, epoch: int, finished: bool) -> int:
    """Go on with a saved iteration over a loader; returns its epoch.

    If that had ended, what was chosen is the epoch after it.
    """
    chosen = _known(loader).chosen if finished else None
    setattr(loader, _NAME, Epochs(epoch, chosen, _of_sampler(loader)))
    return epoch


def choose(loader: Any, epoch: Any) -> None:
    """Say which epoch the next iteration is, to the loader and all that it has."""
    epoch = checked_epoch(epoch)
    for part in (*_samplers(loader), loader.dataset):
        if callable(set_epoch := getattr(part, "set_epoch", None)):
            set_epoch(epoch)
    setattr(loader, _NAME, dataclasses.replace(_known(loader), chosen=epoch))


def told(epoch: int) -> int:
    """The epoch that random steps are told; 0 if there are no datasets of ours."""
    # Who has one has imported them.
    return epoch % _MOST if "gristmill._dataset" in sys.modules else 0


def drawing(fetch: Callable[[Any], Any], epoch: int) -> Callable[[Any], Any]:
    """A fetch of batches whose samples draw in an epoch."""
    draws_in = told(epoch)
    return functools.partial(_fetch_in, draws_in, fetch) if draws_in else fetch


def _fetch_in(epoch: int, fetch: Callable[[Any], Any], batch: Any) -> Any:
    # As `drawing_in`, in less time.
    before, here.epoch = here.epoch, epoch
    try:
        return fetch(batch)
    finally:
        here.epoch = before


def _warn_of_order(loader: Any) -> None:
    """Say that the shuffle of a dataset, which nobody else shuffles, is not renewed.

    A slice of a shuffled dataset is one part of it, of which the order does not matter.
    """
    from gristmill._dataset.model.map_dataset import MapDataset
    from gristmill._dataset.nodes.order import ShuffleMapDataset, SliceMapDataset

    dataset, batches = loader.dataset, loader.batch_sampler
    in_order = type(loader.sampler) is SequentialSampler
    in_order = in_order and (batches is None or type(batches) is BatchSampler)
    if not isinstance(dataset, MapDataset) or not in_order:
        return
    node: Any = dataset
    while len(node.parents) == 1 and not isinstance(node, SliceMapDataset):
        if isinstance(node, ShuffleMapDataset):
            log.warning(
                "The order of %s is the same in each epoch of a torch loader without"
                " shuffle=True: its shuffle() is that of one epoch. Pass shuffle=True.",
                dataset,
            )
            return
        node = node._parent


def _known(loader: Any) -> Epochs:
    known: Epochs = getattr(loader, _NAME, Epochs())
    return known


def _samplers(loader: Any) -> Iterator[Any]:
    """The samplers of a loader, each once."""
    outer = loader.batch_sampler
    inner = getattr(outer, "sampler", None)
    yield outer
    yield inner
    if loader.sampler is not inner:
        yield loader.sampler


def _of_sampler(loader: Any) -> int | None:
    for sampler in _samplers(loader):
        epoch = getattr(sampler, "epoch", None)
        if type(epoch) is int and hasattr(sampler, "set_epoch"):
            return epoch
    return None
