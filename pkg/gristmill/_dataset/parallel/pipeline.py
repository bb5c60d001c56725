"""A chain of datasets that is cut into streams, and what computes one of them.

Workers and threads run these.  Stream s is part s of the chain, see `slicing`; outputs
are taken from the streams in turn.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gristmill._base import open_files
from gristmill._base.types import Alloc
from gristmill._dataset.model import state_checks
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator
from gristmill._dataset.model.opening import as_inner
from gristmill._dataset.model.options import DatasetOptions, MultiprocessingContext
from gristmill._dataset.nodes.slicing import sliced
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator, feeds_of
from gristmill._engine.record_errors import RecordErrors
from gristmill._engine.stream import (
    NO_KEYS,
    Vector,
    first_unpicklable,
    pack_int64,
    unpack_int64,
)

# Bytes that the state of one stream may take on its way from a worker.
MOST_STATE_BYTES = 64 << 10
# The position of a stream before its first output.
FRESH: Vector = (0,)


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """A chain of datasets to be run in parts.  See `gristmill._engine.stream.Runnable`.

    Attributes:
        dataset: The last dataset of the chain.
        numbers: Which part of the chain each stream is.
        parts: How many parts there are.
        sequential: Whether the parts are contiguous pieces of the sources.
        options: What holds for the chain beside the options in it.
        workers: Processes that share the streams, 0 for none.
        worker_init_fn: Called with (worker, workers) in each before all else.
    """

    dataset: IterDataset[Any]
    numbers: range
    parts: int
    sequential: bool
    options: DatasetOptions
    workers: int = 0
    worker_init_fn: Callable[[int, int], None] | None = None

    owned = True
    tolerant = False
    vector_capacity = 1 + MOST_STATE_BYTES // 8
    unit_records = 1
    in_this_process = "MultiprocessingOptions(num_workers=0)"
    replay_hint = (
        "the same state, restored to a dataset with `num_workers=0` and as many"
        " `streams`,"
    )

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self.numbers)

    def stream_length(self, stream: int) -> int:
        """See `Runnable`: not known."""
        return -1

    def greet(self, worker: int) -> None:
        """Have the user prepare a worker."""
        if self.worker_init_fn is not None:
            self.worker_init_fn(worker, self.workers)

    def state_of(self, stream: int, vector: Vector) -> Any:
        """The state of the iterator of a stream at a position."""
        if vector != FRESH:
            return unpacked(vector)
        iterator = self.iterator(stream)
        try:
            return iterator.get_state()
        finally:
            iterator.close()

    def check_states(self, states: Sequence[Any]) -> None:
        """Refuse what are no states of the streams; None and {} are their starts.

        Raises:
            StateMismatch: One is a state of another chain, or none.
            IndexError: One is of a longer dataset.
        """
        for stream, state in enumerate(states):
            if self.is_start(state):
                continue
            try:
                iterator = self.iterator(stream)
            except Exception:
                return  # What computes the stream will say it.
            try:
                state_checks.check_state(iterator, state)
            finally:
                iterator.close()

    def is_start(self, state: Any) -> bool:
        """Whether a state stands for the start of a stream."""
        return state is None or (isinstance(state, dict) and not state)

    def vector_of(self, stream: int, state: Any) -> Vector:
        """The position of a stream at a state of its iterator; None is its start."""
        return FRESH if self.is_start(state) else packed(state)

    def unpicklable_note(self) -> str:
        """See `Runnable`."""
        named = [(f"Dataset: {node}", node) for node in _sources_first(self.dataset)]
        name = first_unpicklable([*named, ("worker_init_fn", self.worker_init_fn)])
        return (
            f"{name or 'The pipeline'} cannot be pickled! Open files, locks and"
            " connections where they are first used, or use"
            f" {self.in_this_process}."
        )

    def iterator(self, stream: int) -> DatasetIterator[Any]:
        """Iterates over one stream, from its beginning.

        Raises:
            ValueError: A source of the chain cannot be cut into parts.
        """
        number = self.numbers[stream]
        with as_inner():
            iterator = iter(sliced(self.dataset, number, self.parts, self.sequential))
        context = getattr(iterator, "_ctx", None)
        if context is not None:
            context.dataset_options = self.options.merge(context.dataset_options)
            context.mp_context = MultiprocessingContext(
                process_index=number, process_count=self.parts
            )
        return iterator

    def open_stream(self, stream: int, at: int = 0) -> DatasetStream:
        """What computes one stream; `at` is not used: elements have no numbers."""
        return DatasetStream(self, stream)


class DatasetStream:
    """Computes the outputs of one stream.  See `gristmill._engine.stream.Stream`.

    Its position is the iterator's state, pickled: its bytes, counted by the first
    integer, lie in the others.

    Args:
        pipeline: The chain.
        stream: Which of its streams.
    """

    def __init__(self, pipeline: Pipeline, stream: int) -> None:
        self.vector = FRESH
        self.keys = NO_KEYS
        self.record_errors = RecordErrors(stream)
        self._pipeline = pipeline
        self._stream = stream
        self._limited: list[PrefetchDatasetIterator[Any]] = []
        self._begun = False
        self._begin()

    def seek(self, vector: Vector) -> None:
        """Make the next output the one that follows position `vector`."""
        if vector != FRESH:
            self._iterator.set_state(unpacked(vector))
        elif self._begun:
            self._iterator.close()
            self._begin()
        self._begun = self._begun or vector != FRESH
        self.vector = vector

    def be_careful(self) -> None:
        """Compute elements one by one until there is another output."""
        self._limited = list(feeds_of(self._iterator))
        for feed in self._limited:
            feed.limit_blocks(1)

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output, see `Stream.next`; a batch is made in `alloc`."""
        iterator: Any = self._iterator
        if self._allocates:
            iterator.alloc = alloc
        self._begun = True
        try:
            element = next(iterator)
            while self._limited:
                self._limited.pop().limit_blocks()
        except StopIteration:
            raise
        except Exception:
            self.vector = packed(iterator.get_state())
            raise
        self.vector = packed(iterator.get_state())
        return element

    def start_prefetch(self) -> None:
        """Begin to read ahead."""
        self._iterator.start_prefetch()

    def close(self) -> None:
        """Stop reading ahead."""
        self._iterator.close()

    def _begin(self) -> None:
        self._iterator = self._pipeline.iterator(self._stream)
        self._allocates = hasattr(self._iterator, "alloc")
        self._begun = False


def packed(state: Any) -> Vector:
    """A position: the state of an iterator as integers."""
    try:
        data = pickle.dumps(state, 5)
    except Exception:
        data = open_files.dumps(state)
    return tuple(pack_int64(data).tolist())


def unpacked(vector: Vector) -> Any:
    """The state that a position other than `FRESH` holds."""
    return pickle.loads(unpack_int64(vector))


def _sources_first(dataset: Any) -> Iterator[Any]:
    """All datasets of a chain, each after its parents."""
    for parent in dataset._parents:
        yield from _sources_first(parent)
    yield dataset
