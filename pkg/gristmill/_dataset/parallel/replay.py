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
from gristmill._dataset.parallel.chain_program import ChainProgram
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset
from gristmill._dataset.parallel.record_tracing import ChainTracer
from gristmill._dataset.parallel.traced_element import Ids, TracedElement, ids_of
from gristmill.options import ReadOptions

NO_THREADS = ReadOptions(num_threads=0, prefetch_buffer_size=0)


@builds("IterDataset.replay")
def replay(dataset: IterDataset[Any], state: Any) -> Any:
    """See `IterDataset.replay`."""
    return _compute_next(_SingleThreadCopier(None).copy(dataset), state)


@builds("IterDataset.ids")
def ids(dataset: IterDataset[Any], state: Any) -> Ids:
    """See `IterDataset.ids`."""
    element: TracedElement | None = _compute_next(
        _SingleThreadCopier(ChainTracer()).copy(dataset), state
    )
    return ids_of(element)


def _compute_next(dataset: Any, state: Any) -> Any:
    """Return the output after a state, computed by a new iterator."""
    with suppress_observation():
        iterator = iter(dataset)
    try:
        iterator.set_state(state)
        return next(iterator)
    finally:
        iterator.close()


class _SingleThreadCopier:
    """Copies a chain so that it runs in this thread alone.

    Args:
        tracer: Copies chains so that elements have ids; None for no ids.
    """

    def __init__(self, tracer: ChainTracer | None) -> None:
        self._tracer = tracer

    def copy(self, dataset: Any) -> Any:
        """Return the copy of a chain."""
        copied = self._copy_without_threads(dataset)
        if self._tracer is None:
            return copied
        return self._tracer.copy(copied)

    def _copy_without_threads(self, dataset: Any) -> Any:
        # The states of this node are its parent's.
        if isinstance(dataset, ThreadPrefetchIterDataset):
            return self._copy_without_threads(dataset._parent)
        if isinstance(dataset, ProcessPrefetchIterDataset):
            return self._copy_without_workers(dataset)
        if isinstance(dataset, InterleaveIterDataset):
            return self._copy_interleaved(dataset)
        if not dataset._parents:
            return dataset
        parents = [self._copy_without_threads(parent) for parent in dataset._parents]
        copied = with_parents(dataset, parents)
        if isinstance(dataset, PrefetchIterDataset):
            copied._read_options = NO_THREADS
            copied._max_block = 1  # Do not compute elements after the output.
        if isinstance(dataset, OnErrorIterDataset):
            # Only the original iterator counts bad records and quarantines them.
            copied.policy = dataclasses.replace(
                dataset.policy, max_errors=None, quarantine=None
            )
        return copied

    def _copy_interleaved(self, dataset: Any) -> Any:
        copied = copy.copy(dataset)
        copied._num_make_iter_threads = copied._iter_buffer_size = 0
        if isinstance(dataset.datasets, MapDataset):
            copied.datasets = dataset.datasets.map(self._copy_part)
        else:
            copied.datasets = [self._copy_part(each) for each in dataset.datasets]
        return copied

    def _copy_part(self, dataset: Any) -> Any:
        if isinstance(dataset, MapDataset):
            dataset = dataset.to_iter_dataset()
        return self._copy_without_threads(dataset)

    def _copy_without_workers(self, dataset: Any) -> Any:
        """Return a copy of a chain in workers whose streams this process computes."""
        program = dataset._program
        fields = {
            field.name: getattr(program, field.name)
            for field in dataclasses.fields(ChainProgram)
        }
        fields |= {"dataset": self.copy(program.dataset), "workers": 0}
        copied = copy.copy(dataset)
        copied._program = ChainProgram(**fields)
        copied._backend = None
        return copied
