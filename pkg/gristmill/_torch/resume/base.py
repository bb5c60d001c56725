"""What our stateful iterators have in common."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from gristmill._torch import layout
from gristmill._torch.iterators.base import LoaderIterator
from gristmill._torch.layout import Saved, State
from gristmill._torch.resume.position import Position


class StatefulIterator(LoaderIterator):
    """An iterator that says where it stands; a base that comes before `LoaderIterator`.

    To go on with a saved epoch draws no random numbers from the loader's generator:
    what the epoch drew when it began is in the state.

    Args:
        loader: Whose iterator it is.
        saved: What to go on from; None begins an epoch.
    """

    _position: Position
    _finished = False

    def __init__(self, loader: Any, saved: Saved | None) -> None:
        self._saved = saved
        self._random = loader.generator or torch.default_generator
        self._random_state = self._random.get_state()
        # What an epoch may be drawn from.
        self._generators = [*dict.fromkeys((torch.default_generator, self._random))]
        super().__init__(loader)

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except StopIteration:
            self._finished = True
            raise

    @contextlib.contextmanager
    def next_epoch(self) -> Iterator[None]:
        """A context in which the epoch after a finished one that was loaded is drawn.

        The loader's own generator goes on from there; torch's default generator, which
        others use, is what it was afterwards, unless that is where it stood.
        """
        saved = self._saved.generators if self._saved is not None else []
        if not saved:
            yield
            return
        found = torch.get_rng_state()
        for generator, state in zip(self._generators, saved, strict=False):
            generator.set_state(state)
        try:
            yield
        finally:
            if not torch.equal(found, saved[0]):
                torch.set_rng_state(found)

    def draw_order(self) -> None:
        """Draw at once what torch's samplers draw when an epoch begins."""
        self._position.state()

    def _ending(self) -> State:
        """What a state says of the next epoch, if this one is over."""
        if not self._finished:
            return {}
        saved = self._saved.generators if self._saved is not None else []
        found = saved or [generator.get_state() for generator in self._generators]
        return {layout.GENERATORS: [*map(layout.digits, found)]}

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._saved = None
        self._finished = False
        super()._reset(loader, first_iter)

    def _draw_natively(self) -> None:
        saved = self._saved
        if saved is not None:
            self._IterableDataset_len_called = saved.main[layout.LEN_CALLED]
            self._shared_seed = saved.main[layout.SHARED_SEED]
            if self._num_workers == 0 or saved.base_seed is not None:
                # Torch's base class has drawn a seed that is not needed.
                self._random.set_state(self._random_state)
            if saved.base_seed is not None:
                self._base_seed = saved.base_seed
        iteration = self._sampler_iter
        super()._draw_natively()
        self._sampler_iter = self._position = Position(self._index_sampler, iteration)
        if saved is not None:
            self._position.restore(saved.main)

    def _pass_over_indices(self, saved: Saved) -> None:
        """Draw what was given after the snapshot, without computing it.

        At the end of an epoch the end too, so that a generator, or a sampler that
        restores itself while it is iterated over, is ready for the next epoch.
        """
        self._position.pass_over(saved.later_steps + saved.finished)


def warn_of_replay(steps: int) -> None:
    """Say that `steps` batches are computed once more for nothing."""
    warnings.warn(
        "Neither the dataset nor its iterator has state_dict and load_state_dict, so"
        f" the first {steps} batches are computed again and passed over. Implement"
        " them in the IterableDataset, or in its iterator, to resume at once.",
        stacklevel=2,
    )


def warn_of_order() -> None:
    """Say that the order of an iterable dataset's batches is not in a state."""
    warnings.warn(
        "With in_order=False the state of an IterableDataset that has no state_dict and"
        " load_state_dict, nor its iterator, tells how many batches were given, not"
        " which: a loader that goes on from it may miss batches or give them again.",
        stacklevel=4,
    )
