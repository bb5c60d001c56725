"""Iterates over a torch loader without workers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gristmill._base.epoch_context import use_epoch
from gristmill._engine.stage_times import PIN, REST, StageTimes, mean_times
from gristmill._engine.worker_stats import LocalStats
from gristmill._engine.workers import check_workers
from gristmill._hot import run as hot_run
from gristmill._torch import epochs, private
from gristmill._torch.batches.deferred import deferred_fetch
from gristmill._torch.batches.native import (
    is_torch_collate,
    native_fetch,
    samples_fetch,
)
from gristmill._torch.batches.stages import fetch_timed, stages_of
from gristmill._torch.iterators.base import LoaderIterator

if TYPE_CHECKING:
    from gristmill._torch.resume.epoch_position import SingleProcessPosition


class SingleProcessIterator(LoaderIterator, private.SingleProcessIterator):  # type: ignore[misc]
    """Computes each batch in the calling thread, when ``next`` is called."""

    def __init__(
        self, loader: Any, position: SingleProcessPosition | None = None
    ) -> None:
        self._position = position
        self._epoch = self._begin_epoch(loader)
        # Torch's `__init__` calls ``iter(dataset)``, which may draw random numbers.
        with use_epoch(epochs.draw_epoch(self._epoch)):
            super().__init__(loader)
        self._start(loader, private.SingleProcessIterator)
        gathers, fetch = self._choose_fetch()
        self._as_lists = not gathers
        self._replace_sampler_iter()
        self._fetch = epochs.fetch_in_epoch(fetch, self._epoch)
        self._times = StageTimes()
        if position is not None:
            self._num_yielded = position.begin(self._dataset_fetcher, self._fetch)

    def _choose_fetch(self) -> tuple[bool, Any]:
        """Return whether batches are gathered, and the function that fetches them.

        Only a function that gathers takes an `IndexBatch`.
        """
        fetch = functools.partial(fetch_timed, self._dataset_fetcher)
        is_map_style = self._dataset_kind == private.DatasetKind.Map
        is_batched = is_map_style and self._auto_collation
        if not is_batched or not is_torch_collate(self._collate_fn):
            return False, fetch
        if gather := native_fetch(self._dataset, fetch):
            return True, gather
        fetch_deferred = deferred_fetch(self._dataset, fetch)
        return False, fetch_deferred or samples_fetch(self._dataset, fetch)

    def set_workers(self, count: int) -> None:
        """Raise ValueError, because the loader was made without workers."""
        check_workers(count)
        raise ValueError(
            "set_workers needs a loader with workers, got num_workers=0. Make the"
            " loader with num_workers=1."
        )

    def usage(self) -> LocalStats:
        """Return the measured times of the stages."""
        iterable = self._dataset_kind == private.DatasetKind.Iterable
        names = stages_of(self._dataset, iterable, self._collate_fn)
        return LocalStats((), mean_times(self._times.by_clock), names)

    def _next_data(self) -> Any:
        times = self._times
        times.calls_until_measured -= 1
        if not times.calls_until_measured:
            # Calls this method again, with `calls_until_measured` below 0.
            return times.measure(REST, self._next_data)
        is_own_iter = self._sampler_iter is self._own_sampler_iter
        keys = next(self._indices) if is_own_iter else self._next_index()
        batch = self._fetch(keys)
        if self._pin_memory:
            stage_start = hot_run.begin()
            batch = private.pin_memory(batch, self._pin_memory_device)
            hot_run.end(PIN, stage_start)
        return batch
