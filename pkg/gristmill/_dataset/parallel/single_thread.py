"""Copies chains so that one thread of this process computes their outputs."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from gristmill._dataset.model import states
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import with_parents
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.nodes.elastic import ElasticIterator
from gristmill._dataset.nodes.interleave import InterleaveIterDataset
from gristmill._dataset.nodes.on_error import OnErrorIterDataset
from gristmill._dataset.nodes.thread_prefetch import ThreadPrefetchIterDataset
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.parallel.chain_program import ChainProgram
from gristmill._dataset.parallel.process_prefetch import ProcessPrefetchIterDataset
from gristmill._dataset.parallel.record_tracing import ChainTracer
from gristmill.options import ReadOptions

NO_THREADS = ReadOptions(num_threads=0, prefetch_buffer_size=0)


def check_state_of(dataset: Any, state: Any) -> None:
    """Raise StateMismatch or IndexError if a state is not one of a chain."""
    with suppress_observation():
        iterator = iter(dataset)
    try:
        states.check_state(iterator, state)
    finally:
        if not isinstance(dataset, ElasticIterator):  # It is the user's iterator.
            iterator.close()


class SingleThreadCopier:
    """Copies a chain so that it runs in this thread alone.

    Args:
        tracer: Copies chains so that elements have ids; None for no ids.
        max_block: The most elements that are computed ahead of an output.
    """

    def __init__(self, tracer: ChainTracer | None, max_block: int = 1) -> None:
        self._tracer = tracer
        self._max_block = max_block

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
        if isinstance(dataset, MapDataset) or not dataset._parents:
            return dataset
        parents = [self._copy_without_threads(parent) for parent in dataset._parents]
        copied = with_parents(dataset, parents)
        if isinstance(dataset, PrefetchIterDataset):
            copied._read_options = NO_THREADS
            copied._max_block = self._max_block
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
