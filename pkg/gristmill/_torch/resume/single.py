"""What stateful iterators have in common, and the one of a loader without workers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from gristmill._torch import epochs, layout, private
from gristmill._torch.iterators import LoaderIterator, SingleProcessIterator
from gristmill._torch.layout import Saved, State
from gristmill._torch.resume.position import EpochPosition


class StatefulIterator(LoaderIterator):
    """An iterator that says where it stands; a base that comes before `LoaderIterator`.

    To go on with a saved epoch draws no random numbers from the loader's generator:
    what the epoch drew when it began is in the state.

    Args:
        saved: What to go on from; None begins an epoch.
    """

    # Where the index sampler stands.
    position: EpochPosition
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

    def _ending(self) -> State:
        """What a state says of the next epoch, if this one is over."""
        if not self._finished:
            return {}
        saved = self._saved.generators if self._saved is not None else []
        found = saved or [generator.get_state() for generator in self._generators]
        return {layout.GENERATORS: [*map(layout.digits, found)]}

    def _begin_epoch(self, loader: Any) -> int:
        saved = self._saved
        if saved is None:
            return super()._begin_epoch(loader)
        return epochs.resume(loader, saved.epoch, saved.finished)

    def _in_epoch(self) -> State:
        """What a state says of its epoch, if that is not the first one."""
        return {layout.EPOCH: self._epoch} if self._epoch else {}

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._saved = None
        self._finished = False
        super()._reset(loader, first_iter)

    def _start(self, loader: Any, torch_class: type) -> None:
        super()._start(loader, torch_class)
        if self._saved is not None:
            self._restore_seeds(self._saved)

    def _draw_natively(self) -> None:
        if self._saved is not None:
            self._restore_seeds(self._saved)
        super()._draw_natively()

    def _drawn(self, base_is_own: bool) -> EpochPosition:
        iteration = self._sampler_iter
        self.position = EpochPosition(self._index_sampler, iteration, self._lists)
        if self._saved is not None:
            self.position.restore(self._saved.main)
        return self.position

    def _restore_seeds(self, saved: Saved) -> None:
        """Put what torch's base class has drawn back to what the saved epoch drew."""
        self._IterableDataset_len_called = saved.main[layout.LEN_CALLED]
        self._shared_seed = saved.main[layout.SHARED_SEED]
        # None where there were no workers.
        base_seed = saved.main.get(layout.BASE_SEED)
        if self._num_workers == 0 or base_seed is not None:
            self._random.set_state(self._random_state)
        if base_seed is not None:
            self._base_seed = base_seed


class StatefulSingleProcessIterator(StatefulIterator, SingleProcessIterator):
    """Computes batches in the calling thread.  See `StatefulIterator`."""

    def __init__(self, loader: Any, saved: Saved | None) -> None:
        # Before the base iterates over the dataset.
        if saved is not None and saved.workers == 0:
            layout.restore(loader.dataset, saved.main[layout.DATASET_STATE])
        super().__init__(loader, saved)
        if saved is not None:
            self._num_yielded = saved.step + saved.later_steps
            self._finished = saved.finished
            if self._dataset_kind == private.DatasetKind.Iterable:
                self._restore_iteration(saved.main)
            else:
                self.position.pass_over(saved)

    def state_dict(self) -> State:
        """Where the iterator stands, in torchdata's layout."""
        return {
            **self.position.state(),
            layout.NUM_YIELDED: self._num_yielded,
            layout.LEN_CALLED: self._IterableDataset_len_called,
            layout.SHARED_SEED: self._shared_seed,
            **layout.dataset_states(self._dataset, self._dataset_fetcher),
            layout.FINISHED: self._finished,
            **self._in_epoch(),
            **self._ending(),
        }

    def _restore_iteration(self, state: State) -> None:
        fetcher = self._dataset_fetcher
        parts = (fetcher.dataset, fetcher.dataset_iter)
        if any(map(layout.is_stateful, parts)):
            if (saved := state[layout.FETCHER_STATE]) is not None:
                layout.restore(fetcher.dataset_iter, saved[layout.DATASET_ITER_STATE])
                fetcher.ended = saved[layout.FETCHER_ENDED]
        elif self._num_yielded > 0 and not self._finished:
            warn_of_replay(self._num_yielded)
            self._replay(state[layout.SAMPLER_YIELDED])

    def _replay(self, batches: int) -> None:
        """Pass over the batches that were given, and errors that were raised."""
        request = next(iter(self._index_sampler))
        for _ in range(batches):
            try:
                self._fetch(request)
            except StopIteration:
                break
            except Exception:
                continue


def warn_of_replay(steps: int) -> None:
    """Say that `steps` batches are computed once more for nothing."""
    warnings.warn(
        "Neither the dataset nor its iterator has state_dict and load_state_dict, so"
        f" the first {steps} batches are computed again and passed over. Implement"
        " them in the IterableDataset, or in its iterator, to resume at once.",
        stacklevel=2,
    )
