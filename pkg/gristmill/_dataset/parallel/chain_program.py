"""A chain of datasets that is split into streams.

Workers and threads run the streams.  Stream s is part s of the chain, see `slicing`;
outputs are taken from the streams in turn.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import pickle
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from gristmill._base import open_files
from gristmill._base.epoch_context import use_epoch
from gristmill._base.types import Alloc, WorkerInitFn
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.model.options import DatasetOptions, MultiprocessingContext
from gristmill._dataset.model.states import check_state
from gristmill._dataset.nodes.on_error import on_error_iterators, policy_of
from gristmill._dataset.nodes.slicing import slice_chain
from gristmill._dataset.nodes.to_iter import (
    PrefetchDatasetIterator,
    PrefetchIterDataset,
    index_iterators_of,
)
from gristmill._engine.program import RUN_RECORDS
from gristmill._engine.record_errors import OutputAbandoned, RecordErrors
from gristmill._engine.stage_times import REST
from gristmill._engine.stream import (
    NO_KEYS,
    PROGRAM_MODULES,
    Output,
    Position,
    first_unpicklable,
    pack_int64,
    record_word,
    unpack_int64,
)
from gristmill.bad_records import ErrorPolicy

PROGRAM_MODULES.append(__name__)
# Bytes that the state of one stream may take on its way from a worker.
MAX_STATE_BYTES = 64 << 10
# The position of a stream before its first output.
START_POSITION: Position = (0,)


@dataclasses.dataclass(frozen=True)
class ChainProgram:
    """A chain of datasets that runs in parts.  See `gristmill._engine.stream.Runnable`.

    Attributes:
        dataset: The last dataset of the chain.
        numbers: The number of the chain's part that each stream computes.
        parts: The number of parts.
        sequential: Whether the parts are contiguous pieces of the sources.
        options: Options for the chain in addition to its own.
        workers: Processes that share the streams, 0 for none.
        worker_init_fn: Called with (worker, workers) first in each worker.
        epoch: The epoch of random steps.
    """

    dataset: IterDataset[Any]
    numbers: range
    parts: int
    sequential: bool
    options: DatasetOptions
    workers: int = 0
    worker_init_fn: WorkerInitFn | None = None
    epoch: int = 0

    owned = True
    stages: ClassVar = {REST: ("transform", "the chain in workers")}
    position_capacity = 1 + MAX_STATE_BYTES // 8
    unit_records = 1
    many_outputs = False
    in_this_process = "MultiprocessingOptions(num_workers=0)"
    replay_hint = (
        "the same state, restored to a dataset with `num_workers=0` and as many"
        " `streams`,"
    )

    @property
    def streams(self) -> int:
        return len(self.numbers)

    @functools.cached_property
    def policy(self) -> ErrorPolicy | None:
        """The error policy of the chain; None if it does not have one."""
        return policy_of(self.dataset)

    @property
    def tolerant(self) -> bool:
        """See `Runnable`."""
        return self.policy is not None and self.policy.on_error != "raise"

    def stream_length(self, stream: int) -> int:
        """Return -1: the length is unknown."""
        return -1

    def init_worker(self, worker: int, workers: int) -> None:
        """Call the user's function for a new worker."""
        if self.worker_init_fn is not None:
            self.worker_init_fn(worker, workers)

    def state_of(self, stream: int, position: Position) -> Any:
        """Return the state of a stream's iterator at a position."""
        if position != START_POSITION:
            return unpack_state(position)
        iterator = self.iterator(stream)
        try:
            return iterator.get_state()
        finally:
            iterator.close()

    def check_states(self, states: Sequence[Any]) -> None:
        """Check the states of the streams; None and {} are their starts."""
        for stream, state in enumerate(states):
            if self.is_start(state):
                continue
            try:
                iterator = self.iterator(stream)
            except Exception:
                return  # Computing the stream will raise this again.
            try:
                check_state(iterator, state)
            finally:
                iterator.close()

    def is_start(self, state: Any) -> bool:
        """Return whether a state is the start of a stream."""
        return state is None or (isinstance(state, dict) and not state)

    def position_of(self, stream: int, state: Any) -> Position:
        """Return the position of a stream at a state of its iterator."""
        return START_POSITION if self.is_start(state) else pack_state(state)

    def unpicklable_note(self) -> str:
        parts = [(f"Dataset: {node}", node) for node in _sources_first(self.dataset)]
        name = first_unpicklable([*parts, ("worker_init_fn", self.worker_init_fn)])
        return (
            f"{name or 'The pipeline'} cannot be pickled! Open files, locks and"
            " connections where they are first used, or use"
            f" {self.in_this_process}."
        )

    def iterator(self, stream: int) -> DatasetIterator[Any]:
        """Make an iterator over one stream, at its beginning."""
        number = self.numbers[stream]
        with suppress_observation(), use_epoch(self.epoch):
            iterator = iter(self.part(number))
        context = getattr(iterator, "_ctx", None)
        if context is not None:
            context.dataset_options = self.options.merge(context.dataset_options)
            context.mp_context = MultiprocessingContext(
                process_index=number, process_count=self.parts
            )
        return iterator

    def part(self, number: int) -> IterDataset[Any]:
        """Return the chain of one part."""
        return slice_chain(self.dataset, number, self.parts, self.sequential)

    def open_stream(self, stream: int, record_address: int = 0) -> DatasetStream:
        """Open a stream; elements have no numbers, so `record_address` is unused."""
        return DatasetStream(self, stream)


class ChainStream:
    """Computes the outputs of one stream.  See `gristmill._engine.stream.Stream`.

    Batches are made in memory from the `alloc` of `next`.
    """

    def __init__(self, program: ChainProgram, stream: int) -> None:
        self.position = START_POSITION
        self.keys = NO_KEYS
        policy = program.policy or ErrorPolicy()
        # Streams that any worker computes do not start an output again.
        limit = policy.max_errors if program.owned else None
        self.record_errors = RecordErrors(stream, policy.on_error, limit)
        self._tolerant = program.tolerant
        self._program = program
        self._stream = stream
        self._open_iterator()

    def _open_iterator(self) -> None:
        self._iterator: Any = self._program.iterator(self._stream)
        self._allocates = hasattr(self._iterator, "alloc")
        if self._tolerant:
            for iterator in on_error_iterators(self._iterator):
                iterator.report_to(self.record_errors)

    def _current_position(self) -> Position:
        """Return the position of the next output."""
        raise NotImplementedError

    def next(self, alloc: Alloc | None = None) -> Any:
        if self._allocates:
            self._iterator.alloc = alloc
        if self._tolerant:
            self.record_errors.begin()
        try:
            element = next(self._iterator)
        except StopIteration:
            raise  # The position does not change at the end.
        except Exception:
            self.position = self._current_position()
            raise
        self.position = self._current_position()
        return element

    def start_prefetch(self) -> None:
        self._iterator.start_prefetch()

    def close(self) -> None:
        self._iterator.close()


class DatasetStream(ChainStream):
    """Computes a stream of any chain.

    Its position is the pickled state of the iterator: the first integer is the number
    of bytes, and the others hold the bytes.
    """

    def __init__(self, program: ChainProgram, stream: int) -> None:
        super().__init__(program, stream)
        # The feeds that compute one element at a time until the next output.
        self._limited_feeds: list[PrefetchDatasetIterator[Any]] = []

    def _open_iterator(self) -> None:
        super()._open_iterator()
        self._has_started = False

    def _current_position(self) -> Position:
        return pack_state(self._iterator.get_state())

    def seek(self, position: Position) -> None:
        """Make the next output the one after `position`."""
        if position != START_POSITION:
            self._iterator.set_state(unpack_state(position))
            self._has_started = True
        elif self._has_started:
            self._iterator.close()
            self._open_iterator()
        self.position = position

    def disable_lookahead(self) -> None:
        """Compute elements one by one until there is another output."""
        self._limited_feeds = list(index_iterators_of(self._iterator))
        for feed in self._limited_feeds:
            feed.set_max_block(1)

    def next(self, alloc: Alloc | None = None) -> Any:
        self._has_started = True
        try:
            element = super().next(alloc)
        except OutputAbandoned:
            self.seek(self.position)
            raise
        while self._limited_feeds:
            self._limited_feeds.pop().set_max_block()
        return element


def pack_state(state: Any) -> Position:
    """Return the state of an iterator as a position."""
    try:
        data = pickle.dumps(state, 5)
    except Exception:
        data = open_files.dumps(state)
    return tuple(pack_int64(data).tolist())


def unpack_state(position: Position) -> Any:
    """Return the state in a position other than `START_POSITION`."""
    return pickle.loads(unpack_int64(position))


def _sources_first(dataset: Any) -> Iterator[Any]:
    """Iterate over all datasets of a chain, each after its parents."""
    for parent in dataset._parents:
        yield from _sources_first(parent)
    yield dataset


@dataclasses.dataclass(frozen=True)
class ArithmeticChainProgram(ChainProgram):
    """A chain whose positions follow from arithmetic: any worker computes any part.

    Each element after `to_iter_dataset` makes one output, and no step counts: the state
    of such a chain is the index of the next element.
    """

    # Kept because nodes that measure may be put into the chain.
    unit_records: int = RUN_RECORDS
    many_outputs: bool = True

    owned = False
    position_capacity = 1

    def stream_length(self, stream: int) -> int:
        """Return the number of indices of a stream's `MapDataset`."""
        node: Any = slice_chain(
            self.dataset, self.numbers[stream], self.parts, self.sequential
        )
        while not isinstance(node, PrefetchIterDataset):
            node = node._parent
        return len(node._parent)

    def state_of(self, stream: int, position: Position) -> Any:
        return {"next_index": position[0]}

    def is_start(self, state: Any) -> bool:
        return state is None

    def position_of(self, stream: int, state: Any) -> Position:
        return (0,) if state is None else (operator.index(state["next_index"]),)

    def open_stream(  # type: ignore[override]
        self, stream: int, record_address: int = 0
    ) -> ArithmeticStream:
        return ArithmeticStream(self, stream, record_address)


class ArithmeticStream(ChainStream):
    """Computes a stream whose position is the index of its next element.

    Stores the index that is being computed in the int64 at `record_address`.
    """

    def __init__(
        self, program: ArithmeticChainProgram, stream: int, record_address: int
    ) -> None:
        super().__init__(program, stream)
        self._current_record = record_word(record_address)
        (self._feed,) = index_iterators_of(self._iterator)
        # If a node follows, the feed's elements are not yet outputs.
        self.computes_runs = self._iterator is self._feed
        # During `next_run`: the index of the first element, and the elements so far,
        # which another thread may read.
        self._current_run: tuple[int, list[Any]] | None = None

    def _current_position(self) -> Position:
        return (self._feed.position,)

    def seek(self, position: Position) -> None:
        """Set the position of the unit that `restrict_to` begins."""
        self.position = position

    def restrict_to(self, count: int) -> None:
        """Begin a unit of `count` elements; other workers compute those after it."""
        self._feed.restrict_to(self.position[0], count)

    def next(self, alloc: Alloc | None = None) -> Any:
        self._current_record.value = self._feed.position
        return super().next(alloc)

    def next_run(self, want: int) -> list[Output]:
        """Return up to `want` next outputs, or none if `next` must be called."""
        feed = self._feed
        if feed.count_buffered():
            return []
        first = self._current_record.value = feed.position
        elements_so_far: list[Any] = []
        self._current_run = first, elements_so_far
        block = feed.take_block(elements_so_far)
        self._current_run = None
        outputs = self._outputs_of(block[:want], first)
        feed.seek(first + len(outputs))
        feed.offer(block[len(outputs) :])  # The next calls return these.
        self.position = self._current_position()
        return outputs

    def outputs_so_far(self) -> list[Output]:
        """Return the outputs so far of another thread's `next_run`."""
        run = self._current_run
        if run is None:
            return []
        first, elements = run
        return self._outputs_of(elements[:], first)

    def _outputs_of(self, elements: list[Any], first: int) -> list[Output]:
        """Return the outputs of elements from index `first` on, up to an absent one."""
        outputs: list[Output] = []
        for next_index, element in enumerate(elements, first + 1):
            if element is None and not self._feed.keeps_absent:
                break
            outputs.append((element, NO_KEYS, (next_index,)))
        return outputs

    def start_prefetch(self) -> None:
        """Do nothing: other workers compute the units after this one."""
