"""Computes a chain of datasets in worker processes.

The state of its iterator is that of Grain's interleaved iterators.  It says how many
streams there are, so it can be restored with any number of workers or threads.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from typing import Any, Self

from gristmill._base.checks import (
    check_callable,
    check_flag,
    check_integer,
    check_options,
)
from gristmill._base.epochs import here
from gristmill._base.types import T, WorkerInitFn
from gristmill._dataset.model.counted import count_of
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    CheckedIterator,
    DatasetIterator,
    get_next_index,
    set_next_index,
)
from gristmill._dataset.model.names import line_of
from gristmill._dataset.model.node import builds, chain_of
from gristmill._dataset.model.states import copied
from gristmill._dataset.nodes.on_error import policy_of
from gristmill._dataset.nodes.slicing import check_parts
from gristmill._dataset.nodes.unsaved import may_lack_state
from gristmill._dataset.nodes.with_options import options_of
from gristmill._dataset.parallel.no_output import warn_of_no_output
from gristmill._dataset.parallel.pipeline import (
    FRESH,
    ArithmeticPipeline,
    Pipeline,
    is_batch,
    records_of_unit,
)
from gristmill._engine.local import LocalRun
from gristmill._engine.record_errors import Tally
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill._engine.state import RunPosition
from gristmill._engine.stream import Position
from gristmill._engine.trial import NotTriedError
from gristmill._engine.workers import Place, check_place
from gristmill.bad_records import BadRecords
from gristmill.errors import StateMismatch
from gristmill.options import MultiprocessingOptions

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
    workers: Place | None = None,
) -> IterDataset[T]:
    """See `IterDataset.mp_prefetch`."""
    check_place(workers)
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
            raise ValueError(f"streams must be positive, got {streams}")
    elif workers is not None:
        streams = max(options.num_workers, 1)
    elif options.num_workers == 0:
        return dataset
    if (size := options.per_worker_buffer_size) <= 0:
        raise ValueError(
            f"`buffer_size` must be greater than 0, got {size}. Set"
            " per_worker_buffer_size to 1 or more."
        )
    made = ProcessPrefetchIterDataset(
        dataset, options, worker_init_fn, sequential_slice, streams, workers
    )
    warn_of_no_output(made._pipeline)
    return made


class ProcessPrefetchIterDataset(IterDataset[T]):
    """The elements of a chain, computed by workers.

    It has no parents: a seed above it does not reach the steps behind it.
    `streams` define the order; None: as many as workers, which a state may change.
    """

    _KIND = "transport"

    def __init__(
        self,
        dataset: IterDataset[T],
        options: MultiprocessingOptions,
        worker_init_fn: WorkerInitFn | None,
        sequential_slice: bool,
        streams: int | None,
        place: Place | None,
    ) -> None:
        super().__init__()
        self._options = options
        self._place = place
        self._fixed = streams is not None
        parts = options.num_workers if streams is None else streams
        check_parts(dataset, parts)
        policy_of(dataset)  # Raises if parts of the chain have different ones.
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
        if (options.num_workers or place) and records is not None:
            pipeline = ArithmeticPipeline(
                **vars(pipeline),
                unit_records=records,
                many_outputs=records > 1 and not is_batch(dataset),
            )
        self._pipeline = pipeline

    def __iter__(self) -> DatasetIterator[T]:
        return ProcessPrefetchDatasetIterator(
            dataclasses.replace(self._pipeline, epoch=here.epoch),
            self._fixed,
            self._options.per_worker_buffer_size,
            self._place,
        )

    @property
    def in_workers(self) -> IterDataset[T]:
        """The last dataset of the chain that workers compute."""
        return self._pipeline.dataset

    @property
    def _may_lack_state(self) -> bool:  # type: ignore[override]
        return may_lack_state(self.in_workers)

    def _in_epoch(self, epoch: int) -> Self:
        return self.with_in_workers(self.in_workers._in_epoch(epoch))

    def with_in_workers(self, dataset: IterDataset[Any]) -> Self:
        """A copy of this dataset, whose workers compute another chain."""
        made = copy.copy(self)
        made._pipeline = dataclasses.replace(self._pipeline, dataset=dataset)
        return made

    @property
    def workers(self) -> int:
        """How many processes compute."""
        return self._options.num_workers

    def with_workers(self, count: int) -> tuple[IterDataset[T], bool]:
        """The same with so many processes, and whether a state of this is one of it.

        Raises:
            NotTriedError: They would have nothing to do, or are no processes.
        """
        if self._place is not None:
            raise NotTriedError("actors of a cluster compute.")
        pipeline = self._pipeline
        keeps = self._fixed or not pipeline.owned
        if keeps and pipeline.owned and count > pipeline.streams:
            raise NotTriedError(
                f"each of the {pipeline.streams} streams is one worker's."
            )
        parts = pipeline.parts if keeps else count
        try:
            check_parts(pipeline.dataset, parts)
        except ValueError as error:
            raise NotTriedError(str(error)) from error
        made = multiprocess_prefetch(
            pipeline.dataset,
            dataclasses.replace(self._options, num_workers=count),
            pipeline.worker_init_fn,
            pipeline.sequential,
            parts if keeps else None,
        )
        return made, keeps

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Leave this dataset the streams of a slice of all."""
        numbers = self._pipeline.numbers[sl]
        self._pipeline = dataclasses.replace(self._pipeline, numbers=numbers)

    def _count_elements(self) -> float:
        return sum(count_of(self._pipeline.part(n)) for n in self._pipeline.numbers)

    def _arguments_text(self) -> str:
        workers, streams = self._options.num_workers, self._pipeline.streams
        place = "" if self._place is None else f", workers={self._place!r}"
        return f"(num_workers={workers}, streams={streams}{place})"

    @property
    def _element_spec(self) -> Any:
        return self._pipeline.dataset._element_spec


class ProcessPrefetchDatasetIterator(CheckedIterator[T]):
    """Iterates over what workers compute; they start at the first `next`."""

    def __init__(
        self, pipeline: Pipeline, fixed: bool, buffer: int, place: Place | None
    ) -> None:
        super().__init__()
        self._ctx.dataset_options = pipeline.options
        self._pipeline = pipeline
        # Whether a state with another number of streams is refused.
        self._fixed = fixed
        policy = pipeline.policy
        self._tally: Tally | None = None
        if policy is not None:
            self._tally = Tally(policy, line_of([*chain_of(pipeline.dataset)][-1]))
        # Outputs that each worker may be ahead, beyond the two in hand.
        self._buffer = buffer
        self._place = place
        # What `set_workers` asked for.
        self._workers: int | None = None
        self._run: LocalRun | RemoteRun | None = None
        # Where the run begins, until its first output was asked for.
        self._begins: RunPosition | None = RunPosition(
            0, 0, [FRESH] * pipeline.streams, [False] * pipeline.streams
        )
        self._ended = False
        self._kept_after_end = False
        # Of streams that gave nothing yet, by number; it takes an iterator to know.
        self._first_states: dict[int, Any] = {}

    @property
    def errors(self) -> BadRecords:  # type: ignore[override]
        return BadRecords(0, ()) if self._tally is None else self._tally.bad_records

    def __next__(self) -> T:
        self._assert_not_closed()
        if self._ended:
            raise StopIteration
        run = self._opened()
        self._begins = None
        try:
            element: T = run.next()
        except StopIteration:
            self._ended = True
            if not self._kept_after_end:
                run.close()
            raise
        return element

    def get_state(self) -> Any:
        """The position of each stream, and the stream whose turn it is."""
        position = self._position
        numbers = list(self._pipeline.numbers)
        return {
            "next_index_in_cycle": position.next_stream,
            "next_index_in_datasets": len(numbers),
            "iterators_in_use_indices": list(range(len(numbers))),
            "iterators_in_use_states": [
                self._state_of(stream, stream_position)
                for stream, stream_position in enumerate(position.positions)
            ],
            "exhausted": [int(ended) for ended in position.ended],
            "future_states": {},
        }

    def _check_state(self, state: Any) -> None:
        states, _, _ = _parts_of(state)
        self._pipeline_of(len(states)).check_states(states)

    def _go_to(self, state: Any) -> None:
        # The number of streams becomes the state's, however many workers there are.
        states, ended, turn = _parts_of(state)
        if len(states) != self._pipeline.streams:
            if self._run is not None:
                self._run.close()
                self._run = None
            self._first_states.clear()
            self._pipeline = self._pipeline_of(len(states))
        positions = [self._pipeline.position_of(*one) for one in enumerate(states)]
        self._go_on(RunPosition(0, turn, positions, ended))

    def _set_workers(self, count: int) -> bool:
        if self._pipeline.workers == 0 and self._place is None:
            return False
        self._workers = count
        if isinstance(self._run, RemoteRun):
            self._run.set_workers(count)
        return True

    def start_prefetch(self) -> None:
        if self._closed:
            raise ValueError("Attempting to use a closed iterator. Make a new one.")
        self._opened().start_prefetch()

    def _release(self) -> None:
        if self._run is not None:
            self._run.close()

    def _abandon(self) -> None:
        if isinstance(self._run, RemoteRun):
            self.close()  # Which any thread may do.

    def _keep_after_end(self) -> None:
        self._kept_after_end = True

    def __str__(self) -> str:
        return f"{type(self).__name__}(streams={self._pipeline.streams})"

    @property
    def _position(self) -> RunPosition:
        if self._begins is not None:
            return self._begins
        assert self._run is not None
        return self._run.position

    def _opened(self) -> LocalRun | RemoteRun:
        if self._run is None:
            self._run = self._new_run(_copy(self._position))
        return self._run

    def _new_run(self, position: RunPosition) -> LocalRun | RemoteRun:
        """What computes the streams from a position on."""
        place, count = self._place, self._workers
        if place is not None:
            place = place if count is None else place.resized(count)
            count = place.processes()
        pipeline = self._pipeline_for(
            self._pipeline.workers if count is None else count
        )
        if pipeline.workers == 0:
            return LocalRun(pipeline, position, self._tally)
        how = RemoteOptions(
            workers=pipeline.workers,
            buffer=self._buffer,
            max_restarts=MAX_RESTARTS,
            memory_limit=0,
            stall_timeout=STALL_TIMEOUT_S,
            stall_action="warn",
            place=place,
        )
        return RemoteRun(pipeline, position, how, self._tally)

    def _pipeline_for(self, workers: int) -> Pipeline:
        """The pipeline as so many workers run it."""
        # Options of nodes behind this one came after it was made.
        pipeline = dataclasses.replace(
            self._pipeline, options=self._ctx.dataset_options, workers=workers
        )
        if pipeline.owned and self._place is None:
            # Each stream is one worker's: more workers than streams would idle.
            workers = min(workers, pipeline.streams)
        return dataclasses.replace(pipeline, workers=workers)

    def _go_on(self, position: RunPosition) -> None:
        self._begins = position
        self._ended = False
        if self._run is not None:
            self._run.restart(_copy(position))

    def _pipeline_of(self, streams: int) -> Pipeline:
        """The pipeline cut into as many streams; refused where they are `fixed`."""
        pipeline = self._pipeline
        if streams == pipeline.streams:
            return pipeline
        if self._fixed or pipeline.parts != pipeline.streams:
            raise StateMismatch(
                f"The state has {streams} streams, but the dataset was made with"
                f" {pipeline.streams}. The number of streams defines the order, so it"
                " cannot change within a run: leave `streams` out, or set it to"
                f" {streams}."
            )
        return dataclasses.replace(pipeline, numbers=range(streams), parts=streams)

    def _state_of(self, stream: int, stream_position: Position) -> Any:
        if stream_position != FRESH:
            return self._pipeline.state_of(stream, stream_position)
        if stream not in self._first_states:
            self._first_states[stream] = self._pipeline.state_of(
                stream, stream_position
            )
        return copied(self._first_states[stream])

    def _get_next_index(self) -> int:
        return get_next_index(self._placed_alone("get_next_index"))

    def _set_next_index(self, index: int) -> None:
        iterator = self._placed_alone("set_next_index")
        set_next_index(iterator, index)
        stream_position = self._pipeline.position_of(0, iterator.get_state())
        self._go_on(RunPosition(0, 0, [stream_position], [False]))

    def _placed_alone(self, function: str) -> DatasetIterator[Any]:
        """An iterator in this process that stands where the only stream does."""
        if self._pipeline.streams != 1:
            raise NotImplementedError(
                f"{function} is not supported for InterleaveDatasetIterator with more"
                f" than one dataset. {self} has {self._pipeline.streams} streams: use"
                " one worker or one stream."
            )
        iterator = self._pipeline.iterator(0)
        (stream_position,) = self._position.positions
        iterator.set_state(self._pipeline.state_of(0, stream_position))
        return iterator


def _copy(position: RunPosition) -> RunPosition:
    positions, ended = list(position.positions), list(position.ended)
    return dataclasses.replace(position, positions=positions, ended=ended)


def _parts_of(state: Any) -> tuple[list[Any], list[bool], int]:
    """Of a state: that of each stream, which have ended, and whose turn it is."""
    try:
        indices = list(state["iterators_in_use_indices"])
        states = list(state["iterators_in_use_states"])
        ended = [_truth(number) for number in state["exhausted"]]
        turn = operator.index(state["next_index_in_cycle"])
        operator.index(state["next_index_in_datasets"])
        futures = state.get("future_states")
    except (AttributeError, LookupError, TypeError) as error:
        raise StateMismatch(
            "Expected the state of a dataset with `mp_prefetch` or"
            " `multithread_prefetch`: a dict with `iterators_in_use_states`,"
            f" `exhausted` and more; got {state!r:.200}. Restore it to the chain that"
            " it was taken from; where that has no workers, pass `streams` to"
            " `mp_prefetch`."
        ) from error
    streams = len(indices)
    whole = indices == list(range(streams)) and not futures
    if not whole or not len(states) == len(ended) == streams > turn >= 0:
        raise StateMismatch(
            f"The state does not say where each of {streams} streams stands: indices"
            f" {indices}, {len(states)} states, exhausted {ended}, next {turn}, future"
            f" states {futures!r:.200}. Restore it to the chain that it was taken from."
        )
    return states, ended, turn


def _truth(number: Any) -> bool:
    """Whether a stream has ended: Grain has 0 and 1."""
    if operator.index(number) not in (0, 1):
        raise TypeError(f"exhausted has {number}")
    return bool(number)
