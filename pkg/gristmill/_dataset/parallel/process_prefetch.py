"""A dataset that computes its chain in worker processes."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Self

from gristmill._base.argument_checks import (
    check_callable,
    check_flag,
    check_integer,
    check_options,
)
from gristmill._base.epoch_context import epoch_context
from gristmill._base.trials import NotTriedError
from gristmill._base.types import T, WorkerInitFn
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.known_length import count_of
from gristmill._dataset.model.node import builds
from gristmill._dataset.nodes.missing_states import may_lack_state
from gristmill._dataset.nodes.on_error import policy_of
from gristmill._dataset.nodes.slicing import check_parts
from gristmill._dataset.nodes.with_options import options_of
from gristmill._dataset.parallel.chain_program import (
    ArithmeticChainProgram,
    ChainProgram,
)
from gristmill._dataset.parallel.no_output import warn_of_no_output
from gristmill._dataset.parallel.process_iterator import ProcessPrefetchDatasetIterator
from gristmill._dataset.parallel.unit_records import is_batch, records_of_unit
from gristmill._engine.auto_run import start_choice
from gristmill._engine.workers import WorkerBackend, check_backend
from gristmill.options import AUTO_STREAMS, MultiprocessingOptions

DEFAULT_WORKERS = 10


@builds("IterDataset.mp_prefetch")
def multiprocess_prefetch(
    dataset: IterDataset[T],
    options: MultiprocessingOptions | None = None,
    worker_init_fn: WorkerInitFn | None = None,
    sequential_slice: bool = False,
    streams: int | None = None,
    workers: WorkerBackend | None = None,
) -> IterDataset[T]:
    """See `IterDataset.mp_prefetch`."""
    check_backend(workers)
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
    if streams is not None:
        check_integer("streams", streams)
        if streams < 1:
            raise ValueError(f"streams must be at least 1, got {streams}.")
    elif workers is not None and options.num_workers != "auto":
        # The backend defines the number of workers, so this is the number of streams.
        streams = max(int(options.num_workers), 1)
    elif options.num_workers == 0:
        return dataset
    if (size := options.per_worker_buffer_size) <= 0:
        raise ValueError(
            f"`buffer_size` must be greater than 0, got {size}. Set"
            " per_worker_buffer_size to 1 or more."
        )
    result = ProcessPrefetchIterDataset(
        dataset, options, worker_init_fn, sequential_slice, streams, workers
    )
    warn_of_no_output(result._program)
    return result


class ProcessPrefetchIterDataset(IterDataset[T]):
    """A dataset whose chain runs in workers.

    It has no parents: a seed before it does not apply to the steps after it.  The
    number of streams defines the order of elements.  If `streams` is None, it is the
    number of workers, or that of the state that an iterator restores.
    """

    _KIND = "transport"

    def __init__(
        self,
        dataset: IterDataset[T],
        options: MultiprocessingOptions,
        worker_init_fn: WorkerInitFn | None,
        sequential_slice: bool,
        streams: int | None,
        backend: WorkerBackend | None,
    ) -> None:
        super().__init__()
        self._options = options
        self._backend = backend
        self._has_fixed_streams = streams is not None
        self._chosen = start_choice("num_workers", options.num_workers, backend)
        worker_count = 1 if options.num_workers == "auto" else options.num_workers
        records = records_of_unit(dataset)
        stream_count = worker_count if streams is None else streams
        if self._chosen is not None and streams is None and records is None:
            stream_count = AUTO_STREAMS
        check_parts(dataset, stream_count)
        policy_of(dataset)  # Raises if parts of the chain have different ones.
        program = ChainProgram(
            dataset=dataset,
            numbers=range(stream_count),
            parts=stream_count,
            sequential=sequential_slice,
            options=options_of(dataset),
            workers=worker_count,
            worker_init_fn=worker_init_fn,
        )
        # Any worker can compute a unit if positions follow from arithmetic.
        if (worker_count or backend) and records is not None:
            program = ArithmeticChainProgram(
                **vars(program),
                unit_records=records,
                many_outputs=records > 1 and not is_batch(dataset),
            )
        self._program = program

    def __iter__(self) -> DatasetIterator[T]:
        return ProcessPrefetchDatasetIterator(
            dataclasses.replace(self._program, epoch=epoch_context.epoch),
            self._has_fixed_streams,
            self._options.per_worker_buffer_size,
            self._backend,
            self._chosen,
        )

    @property
    def in_workers(self) -> IterDataset[T]:
        """The last dataset of the chain that workers compute."""
        return self._program.dataset

    @property
    def _may_lack_state(self) -> bool:  # type: ignore[override]
        return may_lack_state(self.in_workers)

    def _in_epoch(self, epoch: int) -> Self:
        result = self.with_in_workers(self.in_workers._in_epoch(epoch))
        if in_epoch := getattr(self._backend, "in_epoch", None):
            result._backend = in_epoch(epoch)
        return result

    def with_in_workers(self, dataset: IterDataset[Any]) -> Self:
        """Return a copy of this dataset whose workers compute another chain."""
        result = copy.copy(self)
        result._program = dataclasses.replace(self._program, dataset=dataset)
        return result

    @property
    def worker_count(self) -> int:
        """The number of workers that compute the chain; with "auto" the last one."""
        return self._program.workers if self._chosen is None else self._chosen.count

    @property
    def has_auto_workers(self) -> bool:
        """Whether the number of workers is "auto"."""
        return self._chosen is not None

    def with_workers(self, count: int) -> tuple[IterDataset[T], bool]:
        """Return a copy with `count` workers, and whether it can restore our states.

        Raises:
            NotTriedError: Some workers would be idle, or they are not processes.
        """
        if self._backend is not None:
            raise NotTriedError(f"the chain runs in {self._backend!r}.")
        program = self._program
        has_own_streams = self._has_fixed_streams or self._chosen is not None
        keeps_states = has_own_streams or not program.owned
        if keeps_states and program.owned and count > program.streams:
            raise NotTriedError(
                f"each stream belongs to one worker, so more than {program.streams}"
                " workers would be idle."
            )
        stream_count = program.parts if keeps_states else count
        try:
            check_parts(program.dataset, stream_count)
        except ValueError as error:
            raise NotTriedError(str(error)) from error
        result = multiprocess_prefetch(
            program.dataset,
            dataclasses.replace(self._options, num_workers=count),
            program.worker_init_fn,
            program.sequential,
            stream_count if keeps_states else None,
        )
        return result, keeps_states

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep a slice of the streams."""
        numbers = self._program.numbers[sl]
        self._program = dataclasses.replace(self._program, numbers=numbers)

    def _count_elements(self) -> float:
        return sum(count_of(self._program.part(n)) for n in self._program.numbers)

    def _arguments_text(self) -> str:
        workers, streams = repr(self._options.num_workers), self._program.streams
        backend = "" if self._backend is None else f", workers={self._backend!r}"
        return f"(num_workers={workers}, streams={streams}{backend})"

    @property
    def _element_spec(self) -> Any:
        return self._program.dataset._element_spec
