"""Shares the workers of a torch loader."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import data

from gristmill._base.argument_checks import kind
from gristmill._host.client import HostPoolOptions
from gristmill._host.mode import Mode
from gristmill._host.programs import WHOLE
from gristmill._host.torch_workers import TorchHostWorkers
from gristmill._torch import epochs, layout, private
from gristmill._torch.iterators import LoaderIterator
from gristmill._torch.loader import DataLoader
from gristmill._torch.stateful import StatefulDataLoader
from gristmill._torch.workers import start_method

# The attribute of a loader that contains its `_Shared`.
_ATTRIBUTE = "_gristmill_shared"


def share_torch_loader(loader: Any, options: HostPoolOptions) -> LoaderIterator:
    """Return an iterator of a rank.

    Raises:
        TypeError: The loader is not Gristmill's.
        ValueError: The loader has no number of workers, or cannot be divided.
    """
    _check(loader)
    options = options._replace(memory_limit=loader.memory_limit or 0)
    shared = vars(loader).get(_ATTRIBUTE)
    if shared is None or shared.options != options:
        shared = vars(loader)[_ATTRIBUTE] = _Shared(loader, options)
    with shared.in_use(loader):
        iterator: LoaderIterator = iter(loader)
    return iterator


@dataclasses.dataclass
class _Shared:
    """The attributes of a loader while `share` makes its iterator.

    Attributes:
        options: The options of the rank.
        attributes: The attributes.
        sampler: The sampler of the rank's part; None if the loader's own is used.
    """

    options: HostPoolOptions
    attributes: dict[str, Any]
    sampler: data.DistributedSampler[Any] | None

    def __init__(self, loader: Any, options: HostPoolOptions) -> None:
        self.options = options
        parts = {
            "kind": "torch.DataLoader",
            "dataset": loader.dataset,
            "collate_fn": loader.collate_fn,
            "batch_size": loader.batch_size,
            "drop_last": loader.drop_last,
            "num_workers": loader.num_workers,
            "worker_init_fn": loader.worker_init_fn,
        }
        if options.mode is Mode.BROADCAST:
            parts["seeds"] = _seeds(loader)
        backend = TorchHostWorkers(loader.num_workers, 0, options, parts, part=WHOLE)
        self.attributes = {"_worker_backend": backend, "_iterator": None}
        self.sampler = None
        if options.mode is Mode.DEAL:
            self.sampler = _sampler_of_rank(loader, options)
        if self.sampler is not None:
            self.attributes["sampler"] = self.sampler
            if loader.batch_sampler is not None:
                self.attributes["batch_sampler"] = data.BatchSampler(
                    self.sampler, loader.batch_size, loader.drop_last
                )

    @contextlib.contextmanager
    def in_use(self, loader: Any) -> Iterator[None]:
        """Let the loader have these attributes.

        Afterwards, it has its own ones again.  A stateful loader keeps the iterator,
        whose state it returns.
        """
        if self.sampler is not None:
            self.sampler.set_epoch(_next_epoch(loader))
        # Torch's `__setattr__` refuses to set samplers again.
        attributes = vars(loader)
        missing = object()
        own = {name: attributes.get(name, missing) for name in self.attributes}
        attributes.update(self.attributes)
        try:
            yield
        finally:
            self.attributes["_iterator"] = attributes["_iterator"]
            if isinstance(loader, StatefulDataLoader):
                own["_iterator"] = attributes["_iterator"]
            for name, value in own.items():
                attributes[name] = value
                if value is missing:
                    del attributes[name]


def _check(loader: Any) -> None:
    """Raise an error if a loader cannot use a pool."""
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"share needs a gristmill.torch.DataLoader, got {kind(loader)}. Its"
            " arguments are the same."
        )
    if not loader.num_workers or loader._chosen is not None:
        raise ValueError(
            "share needs a loader with a number of workers, but this one has"
            f" num_workers={loader.num_workers!r}. Pass the number of workers of the"
            " host as num_workers."
        )
    context = loader.multiprocessing_context
    if context is not None and not isinstance(context, start_method.LauncherContext):
        raise ValueError(
            "share starts the workers of the host itself, so multiprocessing_context"
            f" must be None, got {context!r}. Leave it out."
        )
    private.require_supported()


def _seeds(loader: Any) -> list[int]:
    """Return the seeds from which the order and the workers' seeds are drawn."""
    generators = loader.generator, getattr(loader.sampler, "generator", None)
    return [(each or torch.default_generator).initial_seed() for each in generators]


def _sampler_of_rank(
    loader: Any, options: HostPoolOptions
) -> data.DistributedSampler[Any] | None:
    """Return a sampler of the rank's part; None if the loader's own one has it.

    Raises:
        ValueError: The loader has samplers of another kind, or for another rank.
    """
    rank, ranks = options.rank, options.ranks
    sampler, batches = loader.sampler, loader.batch_sampler
    for owner in (sampler, batches, getattr(batches, "sampler", None)):
        found = [getattr(owner, name, None) for name in ("rank", "num_replicas")]
        if None in found:
            continue
        if found == [rank, ranks]:
            return None
        raise ValueError(
            f"The {type(owner).__name__} of the loader must have rank={rank} and"
            f" num_replicas={ranks}, like share, but it has rank={found[0]} and"
            f" num_replicas={found[1]}."
        )
    if isinstance(loader.dataset, data.IterableDataset):
        raise ValueError(
            "share cannot deal an IterableDataset, because it has no indices. Use a"
            " map-style dataset, pass mode='broadcast', or let the dataset read the"
            " part of each rank without share."
        )
    if not _has_torch_samplers(loader):
        raise ValueError(
            "share can deal a loader with shuffle= or a sampler for its rank, but this"
            f" one has a {type(batches).__name__} over a {type(sampler).__name__}. Pass"
            f" sampler=DistributedSampler(dataset, num_replicas={ranks}, rank={rank})."
        )
    if ranks == 1:
        return None
    generator = getattr(sampler, "generator", None) or loader.generator
    return data.DistributedSampler(
        loader.dataset,
        ranks,
        rank,
        shuffle=isinstance(sampler, data.RandomSampler),
        seed=0 if generator is None else generator.initial_seed(),
        drop_last=loader.drop_last,
    )


def _has_torch_samplers(loader: Any) -> bool:
    """Return whether the samplers are those that `shuffle` and `batch_size` make."""
    sampler, batches = loader.sampler, loader.batch_sampler
    if batches is not None and type(batches) is not data.BatchSampler:
        return False
    if batches is not None and batches.sampler is not sampler:
        return False
    if type(sampler) is data.RandomSampler:
        draws_each_once = sampler.num_samples == len(sampler.data_source)
        return not sampler.replacement and draws_each_once
    return type(sampler) is data.SequentialSampler


def _next_epoch(loader: Any) -> int:
    """Return the epoch of the next iteration over a loader."""
    state = getattr(loader, "next_iter_state", None)
    if state is None:
        return epochs.next_epoch(loader)
    return int(state.get(layout.EPOCH, 0)) + bool(state[layout.FINISHED])
