"""Computes the output that follows a state again, in this process."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import builds, with_parents
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.on_error import OnErrorIterDataset
from gristmill._dataset.nodes.thread_prefetch import ThreadPrefetchIterDataset
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.parallel.pipeline import Pipeline
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset
from gristmill._dataset.parallel.traced import Ids, Traced, Tracing, ids_of
from gristmill.options import ReadOptions

NO_THREADS = ReadOptions(num_threads=0, prefetch_buffer_size=0)


@builds("IterDataset.replay")
def replay(dataset: IterDataset[Any], state: Any) -> Any:
    """See `IterDataset.replay`."""
    return _next_of(_Here(None).copy(dataset), state)


@builds("IterDataset.ids")
def ids(dataset: IterDataset[Any], state: Any) -> Ids:
    """See `IterDataset.ids`."""
    traced: Traced | None = _next_of(_Here(Tracing()).copy(dataset), state)
    return ids_of(traced)


def _next_of(dataset: Any, state: Any) -> Any:
    with suppress_observation():
        iterator = iter(dataset)
    try:
        iterator.set_state(state)
        return next(iterator)
    finally:
        iterator.close()


class _Here:
    """Copies a chain so that it runs in this thread alone.

    Args:
        tracing: Copies chains so that elements have ids; None for no ids.
    """

    def __init__(self, tracing: Tracing | None) -> None:
        self._tracing = tracing

    def copy(self, dataset: Any) -> Any:
        """Return the copy of a chain."""
        made = self._without_threads(dataset)
        if self._tracing is None:
            return made
        return self._tracing.copy(made)

    def _without_threads(self, dataset: Any) -> Any:
        if isinstance(dataset, ThreadPrefetchIterDataset):
            return self._without_threads(dataset._parent)
        if isinstance(dataset, ProcessPrefetchIterDataset):
            return self._without_workers(dataset)
        if isinstance(dataset, InterleaveIterDataset):
            return self._interleaved(dataset)
        if not dataset._parents:
            return dataset
        parents = [self._without_threads(parent) for parent in dataset._parents]
        made = with_parents(dataset, parents)
        if isinstance(dataset, PrefetchIterDataset):
            made._read_options = NO_THREADS
            made._max_block = 1
        if isinstance(dataset, OnErrorIterDataset):
            # Only the original iterator counts bad records and quarantines them.
            made.policy = dataclasses.replace(
                dataset.policy, max_errors=None, quarantine=None
            )
        return made

    def _interleaved(self, dataset: Any) -> Any:
        made = copy.copy(dataset)
        made._num_make_iter_threads = made._iter_buffer_size = 0
        if isinstance(dataset.datasets, MapDataset):
            made.datasets = dataset.datasets.map(self._part)
        else:
            made.datasets = [self._part(each) for each in dataset.datasets]
        return made

    def _part(self, dataset: Any) -> Any:
        if isinstance(dataset, MapDataset):
            dataset = dataset.to_iter_dataset()
        return self._without_threads(dataset)

    def _without_workers(self, dataset: Any) -> Any:
        pipeline = dataset._pipeline
        plain = {
            field.name: getattr(pipeline, field.name)
            for field in dataclasses.fields(Pipeline)
        }
        plain |= {"dataset": self.copy(pipeline.dataset), "workers": 0}
        made = copy.copy(dataset)
        made._pipeline = Pipeline(**plain)
        made._place = None
        return made
