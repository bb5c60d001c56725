"""The stateful iterator of a loader without workers."""

from __future__ import annotations

from typing import Any

from gristmill._torch import layout, private
from gristmill._torch.iterators.single import SingleProcessIterator
from gristmill._torch.layout import Saved, State
from gristmill._torch.resume.base import StatefulIterator, warn_of_replay


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
                self._pass_over_indices(saved)

    def state_dict(self) -> State:
        """Where the iterator stands, in torchdata's layout."""
        return {
            **self._position.state(),
            layout.NUM_YIELDED: self._num_yielded,
            layout.LEN_CALLED: self._IterableDataset_len_called,
            layout.SHARED_SEED: self._shared_seed,
            **layout.dataset_states(self._dataset, self._dataset_fetcher),
            layout.FINISHED: self._finished,
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
