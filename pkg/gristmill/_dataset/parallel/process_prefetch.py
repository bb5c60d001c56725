"""Computes a chain of datasets in worker processes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Self, TypeVar

from gristmill._base.checks import (
    check_callable,
    check_flag,
    check_integer,
    check_options,
)
from gristmill._dataset.model.building import builds
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.spec import get_element_spec
from gristmill._dataset.nodes.with_options import options_of
from gristmill._dataset.parallel.arithmetic import (
    ArithmeticPipeline,
    is_arithmetic,
    records_of_unit,
)
from gristmill._dataset.parallel.interleaved import InterleavedDatasetIterator, Run
from gristmill._dataset.parallel.pipeline import Pipeline
from gristmill._engine.local import LocalRun
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill._engine.state import Position
from gristmill.options import MultiprocessingOptions

T = TypeVar("T")
WorkerInitFn = Callable[[int, int], None]
DEFAULT_WORKERS = 10
STALL_TIMEOUT_S = 60.0
# How often an element that killed its worker is tried again.
MAX_RESTARTS = 1


@builds("IterDataset.mp_prefetch")
def multiprocess_prefetch(
    dataset: IterDataset[T],
    options: MultiprocessingOptions | None = None,
    worker_init_fn: WorkerInitFn | None = None,
    sequential_slice: bool = False,
    streams: int | None = None,
) -> IterDataset[T]:
    """See `IterDataset.mp_prefetch`."""
    if options is None:
        options = MultiprocessingOptions(num_workers=DEFAULT_WORKERS)
    check_options(
        "The first argument of mp_prefetch",
        options,
        MultiprocessingOptions,
        "mp_prefetch(MultiprocessingOptions(num_workers=4))",
    )
    if worker_init_fn is not None:
        check_callable("worker_init_fn", worker_init_fn)
    check_flag("sequential_slice", sequential_slice)
    if streams is None:
        if options.num_workers == 0:
            return dataset
    else:
        check_integer("streams", streams)
        if streams < 1:
            raise ValueError(f"streams must be positive, got {streams}")
    if options.per_worker_buffer_size <= 0:
        raise ValueError(
            "`buffer_size` must be greater than 0, got"
            f" {options.per_worker_buffer_size}. Set per_worker_buffer_size to 1 or"
            " more."
        )
    return ProcessPrefetchIterDataset(
        dataset, options, worker_init_fn, sequential_slice, streams
    )


class ProcessPrefetchIterDataset(IterDataset[T]):
    """The elements of a chain, computed by workers.

    It has no parents: a seed above it does not reach the steps behind it.

    Args:
        dataset: The last dataset of the chain.
        options: How many workers, and how far ahead each.
        worker_init_fn: Called with (worker, workers) in each worker first.
        sequential_slice: Whether streams are contiguous pieces of the sources.
        streams: Interleaved streams that define the order; None for as many as
            workers, which a state may change.
    """

    _MUTATES_ELEMENT_SPEC = False

    def __init__(
        self,
        dataset: IterDataset[T],
        options: MultiprocessingOptions,
        worker_init_fn: WorkerInitFn | None,
        sequential_slice: bool,
        streams: int | None,
    ) -> None:
        super().__init__()
        self._options = options
        self._fixed = streams is not None
        parts = options.num_workers if streams is None else streams
        pipeline = Pipeline(
            dataset=dataset,
            numbers=range(parts),
            parts=parts,
            sequential=sequential_slice,
            options=options_of(dataset),
            workers=options.num_workers,
            worker_init_fn=worker_init_fn,
        )
        if options.num_workers and is_arithmetic(dataset):
            pipeline = ArithmeticPipeline(
                **vars(pipeline), unit_records=records_of_unit(dataset)
            )
        self._pipeline = pipeline

    def __iter__(self) -> DatasetIterator[T]:
        return ProcessPrefetchDatasetIterator(
            self._pipeline, self._fixed, self._options.per_worker_buffer_size
        )

    @property
    def in_workers(self) -> IterDataset[T]:
        """The last dataset of the chain that workers compute."""
        return self._pipeline.dataset

    def with_in_workers(self, dataset: IterDataset[Any]) -> Self:
        """A copy of this dataset, whose workers compute another chain."""
        made = copy.copy(self)
        made._pipeline = dataclasses.replace(self._pipeline, dataset=dataset)
        return made

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Leave this dataset the streams of a slice of all."""
        self._pipeline = dataclasses.replace(
            self._pipeline, numbers=self._pipeline.numbers[sl]
        )

    def __str__(self) -> str:
        return (
            f"ProcessPrefetchIterDataset(num_workers={self._options.num_workers},"
            f" streams={self._pipeline.streams})"
        )

    @property
    def _element_spec(self) -> Any:
        return get_element_spec(self._pipeline.dataset)


class ProcessPrefetchDatasetIterator(InterleavedDatasetIterator[T]):
    """Iterates over what workers compute; they start at the first `next`.

    Args:
        pipeline: The chain and its streams.
        fixed: Whether a state with another number of streams is refused.
        buffer: Outputs that each worker may be ahead, beyond the two in hand.
    """

    def __init__(self, pipeline: Pipeline, fixed: bool, buffer: int) -> None:
        super().__init__(pipeline, fixed)
        self._buffer = buffer

    def _open(self, pipeline: Pipeline, position: Position) -> Run:
        if pipeline.workers == 0:
            return LocalRun(pipeline, position, None)
        workers = pipeline.workers
        if pipeline.owned:
            # Each stream is one worker's: more workers than streams would idle.
            workers = min(workers, pipeline.streams)
        options = RemoteOptions(
            workers=workers,
            buffer=self._buffer,
            max_restarts=MAX_RESTARTS,
            memory_limit=0,
            stall_timeout=STALL_TIMEOUT_S,
            stall_action="warn",
        )
        pipeline = dataclasses.replace(pipeline, workers=workers)
        return RemoteRun(pipeline, position, options, None)
