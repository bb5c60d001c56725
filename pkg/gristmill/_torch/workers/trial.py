"""Tries changes to a loader in separate iterators, see `_observe.verification`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset

from gristmill._base.trials import NotTriedError
from gristmill._torch.batches import encoding

# Torch's default, for a loader without workers that is tried with some.
DEFAULT_PREFETCH = 2


class TorchTrial:
    """A `gristmill._observe.verification.Trial` of a loader; each begins a new epoch.

    Afterwards it restores the states of the loader's own generators.

    Args:
        loader: The loader.
        workers: The number of workers of the user's iterator.
        iterate: Returns an iterator over a loader.
    """

    def __init__(
        self, loader: Any, workers: int, iterate: Callable[[Any], Any]
    ) -> None:
        self._loader = loader
        self._iterate = iterate
        self.workers = workers
        self._generator_states: list[tuple[torch.Generator, torch.Tensor]] = []

    def open(
        self, extra_workers: int, from_position: bool, threads: int | None = None
    ) -> Any:
        if threads is not None:
            raise NotTriedError("torch's loaders have no reading threads.")
        loader = copy_of(self._loader)
        if isinstance(loader.dataset, IterableDataset):
            raise NotTriedError("an IterableDataset is consumed by reading.")
        for sampler in (loader.sampler, loader.batch_sampler):
            if isinstance(sampler, Iterator):
                raise NotTriedError("the sampler is consumed by drawing from it.")
        workers = self.workers + extra_workers
        options: dict[str, Any] = {"num_workers": workers}
        # Also those of a loader that shares its workers are tried with own ones.
        options |= {"persistent_workers": False, "_worker_backend": None}
        if workers and loader.prefetch_factor is None:
            options["prefetch_factor"] = DEFAULT_PREFETCH
        # Torch's `__setattr__` refuses to set `persistent_workers` again.
        loader.__dict__.update(options, _iterator=None, overlap_epochs=False)
        self._generator_states = [
            (generator, generator.get_state()) for generator in _generators(loader)
        ]
        try:
            return self._iterate(loader)
        except BaseException:
            self._restore_generators()
            raise

    def close(self, iterator: Any) -> None:
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()
        self._restore_generators()

    def _restore_generators(self) -> None:
        for generator, state in self._generator_states:
            generator.set_state(state)

    def encode_output(self, output: Any) -> Any:
        return encoding.encode(output)

    def decode_output(self, sent: Any) -> Any:
        return encoding.decode(sent)[0]


def copy_of(loader: Any) -> Any:
    """Return a copy without an iterator; do not call a subclass's copy methods."""
    loader_copy = object.__new__(type(loader))
    loader_copy.__dict__.update(loader.__dict__, _iterator=None)
    return loader_copy


def _generators(loader: Any) -> list[torch.Generator]:
    """Return the generators that belong to a loader and its samplers."""
    owners = (loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    generators = [getattr(owner, "generator", None) for owner in owners]
    return [each for each in generators if isinstance(each, torch.Generator)]
