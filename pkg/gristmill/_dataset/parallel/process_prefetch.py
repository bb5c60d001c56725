"""Computes a chain of datasets in worker processes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Self

from gristmill._base.checks import (
    check_callable,
    check_flag,
    check_integer,
    check_options,
)
from gristmill._base.types import T
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.node import builds
from gristmill._dataset.nodes.with_options import options_of
from gristmill._dataset.parallel.arithmetic import ArithmeticPipeline, records_of_unit
from gristmill._dataset.parallel.pipeline import Pipeline
from gristmill._dataset.parallel.process_iterator import ProcessPrefetchDatasetIterator
from gristmill.options import MultiprocessingOptions

WorkerInitFn = Callable[[int, int], None]
DEFAULT_WORKERS = 10


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

    _KIND = "transport"

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
        records = records_of_unit(dataset)
        if options.num_workers and records is not None:
            pipeline = ArithmeticPipeline(**vars(pipeline), unit_records=records)
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

    def _arguments_text(self) -> str:
        return (
            f"(num_workers={self._options.num_workers},"
            f" streams={self._pipeline.streams})"
        )

    @property
    def _element_spec(self) -> Any:
        return self._pipeline.dataset._element_spec
