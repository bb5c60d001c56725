"""The position of a stateful loader's epoch, and its state without workers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gristmill._torch import epochs, layout, private
from gristmill._torch.layout import SavedState, State
from gristmill._torch.resume.sampler_position import SamplerPosition


class EpochPosition:
    """The position of one epoch, which the epoch's iterator reports its progress to.

    The iterator calls `begin_epoch` and `iterate_sampler` while it is constructed, then
    `begin` of the subclass, and `finish` at the end of the epoch.  Each epoch has its
    own position.  Only the thread that iterates uses it.

    Resuming an epoch draws no random numbers from the loader's generator, because the
    state contains the numbers that the epoch drew at its beginning.

    Args:
        loader: A stateful loader.
        saved: The state to resume from.  None begins an epoch.

    Attributes:
        sampler: The position in the index sampler.
        finished: Whether the epoch is over.
    """

    sampler: SamplerPosition
    # Whether the iterator computes the epoch again from its beginning.
    _starts_over = False

    def __init__(self, loader: Any, saved: SavedState | None) -> None:
        self._saved = saved
        self._iterable = loader._dataset_kind == private.DatasetKind.Iterable
        self._epoch = 0
        self.finished = saved is not None and saved.finished
        # The generator from which torch's iterator draws its seeds, and its state
        # before that.
        self._seed_generator = loader.generator or torch.default_generator
        self._seed_generator_state = self._seed_generator.get_state()
        # The generators that samplers may draw an epoch from.
        self._generators = [
            *dict.fromkeys((torch.default_generator, self._seed_generator))
        ]

    def begin_epoch(self, loader: Any) -> int:
        """Count an iteration over the loader, and return its epoch."""
        saved = self._saved
        if saved is None:
            self._epoch = epochs.begin(loader)
        else:
            self._epoch = epochs.resume(loader, saved.epoch, saved.finished)
        return self._epoch

    def restore_seeds(self, iterator: Any) -> None:
        """Give torch's iterator the saved epoch's seeds in place of those it drew.

        Torch's base class draws seeds from the loader's generator, and does so twice.
        """
        if self._saved is None:
            return
        main = self._saved.main
        iterator._IterableDataset_len_called = main[layout.LEN_CALLED]
        iterator._shared_seed = main[layout.SHARED_SEED]
        # None if the saved loader had no workers.  Workers then use a newly drawn seed.
        base_seed = main.get(layout.BASE_SEED)
        if iterator._num_workers == 0 or base_seed is not None:
            self._seed_generator.set_state(self._seed_generator_state)
        if base_seed is not None:
            iterator._base_seed = base_seed

    def iterate_sampler(self, iterator: Any) -> SamplerPosition:
        """Return the iterator over the sampler that torch's iterator draws from."""
        self.restore_seeds(iterator)
        self.sampler = SamplerPosition(
            iterator._index_sampler, iterator._sampler_iter, iterator._as_lists
        )
        if self._saved is not None and not self._starts_over:
            self.sampler.restore(self._saved.main)
        return self.sampler

    def finish(self) -> None:
        """Note that the epoch is over."""
        self.finished = True

    @contextlib.contextmanager
    def final_generator_states(self) -> Iterator[None]:
        """Return a context for drawing the epoch after a finished one that was loaded.

        The generators draw from their states at the end of the finished epoch.  Other
        code uses torch's default generator, which is therefore restored afterwards
        unless it had the saved state before.
        """
        final_states = self._saved.generators if self._saved is not None else []
        if not final_states:
            yield
            return
        default_state = torch.get_rng_state()
        for generator, state in zip(self._generators, final_states, strict=False):
            generator.set_state(state)
        try:
            yield
        finally:
            if not torch.equal(default_state, final_states[0]):
                torch.set_rng_state(default_state)

    def _epoch_state(self) -> State:
        """Return the number of the epoch, and the generators at its end."""
        state: State = {layout.EPOCH: self._epoch} if self._epoch else {}
        if self.finished:
            final_states = self._saved.generators if self._saved is not None else []
            if not final_states:
                final_states = [generator.get_state() for generator in self._generators]
            state[layout.GENERATORS] = [*map(layout.hex_digits, final_states)]
        return state


class SingleProcessPosition(EpochPosition):
    """The position of an epoch without workers."""

    def __init__(self, loader: Any, saved: SavedState | None) -> None:
        # Before torch's iterator calls ``iter(dataset)``.
        if saved is not None and saved.workers == 0:
            layout.restore(loader.dataset, saved.main[layout.DATASET_STATE])
        super().__init__(loader, saved)

    def begin(self, fetcher: Any, fetch: Callable[[Any], Any]) -> int:
        """Resume the dataset's iteration, and return the number of delivered batches.

        Args:
            fetcher: Torch's fetcher of the dataset.
            fetch: Computes the batch of a request.
        """
        saved = self._saved
        if saved is None:
            return 0
        delivered = saved.step + saved.later_steps
        if not self._iterable:
            self.sampler.skip(saved)
        elif any(map(layout.is_stateful, (fetcher.dataset, fetcher.dataset_iter))):
            if (state := saved.main[layout.FETCHER_STATE]) is not None:
                layout.restore(fetcher.dataset_iter, state[layout.DATASET_ITER_STATE])
                fetcher.ended = state[layout.FETCHER_ENDED]
        elif delivered > 0 and not self.finished:
            warn_of_replay(delivered)
            self._replay(fetch, saved.main[layout.SAMPLER_YIELDED])
        return delivered

    def state(self, iterator: Any) -> State:
        """Return the state of torch's iterator in torchdata's layout."""
        return {
            **self.sampler.state(leaves_generator=True),
            layout.NUM_YIELDED: iterator._num_yielded,
            layout.LEN_CALLED: iterator._IterableDataset_len_called,
            layout.SHARED_SEED: iterator._shared_seed,
            **layout.dataset_states(iterator._dataset, iterator._dataset_fetcher),
            layout.FINISHED: self.finished,
            **self._epoch_state(),
        }

    def _replay(self, fetch: Callable[[Any], Any], batches: int) -> None:
        """Compute the delivered batches again, and ignore errors that were raised."""
        # All requests to an iterable dataset are the same, see `EndlessSampler`.
        request = next(iter(self.sampler.index_sampler))
        for _ in range(batches):
            try:
                fetch(request)
            except StopIteration:
                break
            except Exception:
                continue


def warn_of_replay(steps: int) -> None:
    """Warn that `steps` batches are computed a second time and dropped."""
    warnings.warn(
        "Neither the dataset nor its iterator has state_dict and load_state_dict, so"
        f" the first {steps} batches are computed again and skipped. Implement both"
        " methods in the IterableDataset, or in its iterator, to resume at once.",
        stacklevel=2,
    )
