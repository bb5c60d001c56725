"""Computes a chain of datasets in threads of this process."""

from __future__ import annotations

import collections
import copy
import dataclasses
import threading
from typing import Any, TypeVar

from gristmill._checks import check_integer
from gristmill._dataset.base import IterDataset
from gristmill._dataset.in_turn import RunInTurn
from gristmill._dataset.interleaved import InterleavedDatasetIterator, Run
from gristmill._dataset.iterator import DatasetIterator
from gristmill._dataset.pipeline import DatasetStream, Pipeline, options_of
from gristmill._dataset.source import SourceMapDataset
from gristmill._dataset.spec import get_element_spec
from gristmill._engine.state import Position
from gristmill._engine.stream import Vector

T = TypeVar("T")


def multithread_prefetch(
    ds: IterDataset[T],
    num_threads: int,
    buffer_size: int,
    sequential_slice: bool = False,
) -> IterDataset[T]:
    """Compute a chain of datasets in threads.

    As `IterDataset.mp_prefetch`, with a thread for each worker: for steps that wait, or
    give up the interpreter's lock.

    Args:
        ds: The last dataset of the chain.
        num_threads: Threads, and streams.  With 0 this returns `ds`.
        buffer_size: Elements that each may be ahead, at least 1.
        sequential_slice: Whether streams are contiguous pieces of the sources.

    Raises:
        ValueError: A number is out of range.

    Example:
        >>> ds = gristmill.MapDataset.range(6).to_iter_dataset().batch(2)
        >>> ds = gristmill.experimental.multithread_prefetch(ds, 2, buffer_size=1)
        >>> [batch.tolist() for batch in ds]
        [[0, 2], [1, 3], [4], [5]]
    """
    check_integer("num_threads", num_threads)
    check_integer("buffer_size", buffer_size)
    if num_threads < 0:
        raise ValueError(f"num_threads must be non-negative, got {num_threads}")
    if num_threads == 0:
        return ds
    if buffer_size < 1:
        raise ValueError(f"buffer_size must be positive, got {buffer_size}")
    return MultithreadPrefetchIterDataset(
        ds, num_threads, buffer_size, sequential_slice
    )


class MultithreadPrefetchIterDataset(IterDataset[T]):
    """The elements of a chain, computed by threads.

    It has no parents: a seed above it does not reach the steps behind it.

    Args:
        dataset: The last dataset of the chain.
        threads: Threads, and streams.
        buffer: Elements that each thread may be ahead.
        sequential_slice: Whether streams are contiguous pieces of the sources.
    """

    _MUTATES_ELEMENT_SPEC = False

    def __init__(
        self,
        dataset: IterDataset[T],
        threads: int,
        buffer: int,
        sequential_slice: bool,
    ) -> None:
        super().__init__()
        self._buffer = buffer
        self._pipeline = Pipeline(
            dataset=dataset,
            numbers=range(threads),
            parts=threads,
            sequential=sequential_slice,
            options=options_of(dataset),
        )

    def __iter__(self) -> DatasetIterator[T]:
        return MultithreadPrefetchDatasetIterator(self._pipeline, self._buffer)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Leave this dataset the streams of a slice of all."""
        self._pipeline = dataclasses.replace(
            self._pipeline, numbers=self._pipeline.numbers[sl]
        )

    def __str__(self) -> str:
        return (
            f"MultithreadPrefetchIterDataset(num_threads={self._pipeline.streams},"
            f" buffer_size={self._buffer})"
        )

    @property
    def _element_spec(self) -> Any:
        return get_element_spec(self._pipeline.dataset)


class MultithreadPrefetchDatasetIterator(InterleavedDatasetIterator[T]):
    """Iterates over what threads compute; they start at the first `next`.

    Args:
        pipeline: The chain and its streams.
        buffer: Elements that each thread may be ahead.
    """

    def __init__(self, pipeline: Pipeline, buffer: int) -> None:
        super().__init__(pipeline, fixed=False)
        self._buffer = buffer

    def _open(self, pipeline: Pipeline, position: Position) -> Run:
        return _RunByThreads(pipeline, position, self._buffer)


class _RunByThreads(RunInTurn):
    """Computes each stream ahead in a thread of its own."""

    def __init__(self, pipeline: Pipeline, position: Position, buffer: int) -> None:
        super().__init__(pipeline, position)
        self._buffer = buffer
        self._ahead: list[_Ahead] = []

    def start_prefetch(self) -> None:
        """Start the threads."""
        self._started()

    def restart(self, position: Position) -> None:
        """Go on from another position, with new threads."""
        self.close()
        self.position = position

    def close(self) -> None:
        """End the threads; waits for the elements in work."""
        for ahead in self._ahead:
            ahead.stop()
        for ahead in self._ahead:
            # Garbage may be collected, and this closed, in any thread.
            if ahead is not threading.current_thread():
                ahead.join()
        self._ahead = []

    def _take(self, number: int) -> Any:
        return self._started()[number].take(self.position, number)

    def _started(self) -> list[_Ahead]:
        if not self._ahead:
            # Steps with a state of their own have one in each thread.
            alone = self.position.streams == 1
            for number, vector in enumerate(self.position.vectors):
                pipeline = self._pipeline
                if not alone:
                    own = _copy_of(pipeline.dataset)
                    pipeline = dataclasses.replace(pipeline, dataset=own)
                self._ahead.append(_Ahead(pipeline, number, vector, self._buffer))
            for ahead in self._ahead:
                ahead.start()
        return self._ahead


def _copy_of(dataset: IterDataset[Any]) -> IterDataset[Any]:
    """A deep copy of a chain, but for its sources."""
    shared: dict[int, Any] = {}
    nodes: list[Any] = [dataset]
    for node in nodes:
        if isinstance(node, SourceMapDataset):
            for source in (node._source, node._reader):
                shared[id(source)] = source
        nodes.extend(node._parents)
    return copy.deepcopy(dataset, shared)


class _Ahead(threading.Thread):
    """Computes one stream, up to `buffer` outputs ahead of need."""

    def __init__(
        self, pipeline: Pipeline, number: int, vector: Vector, buffer: int
    ) -> None:
        super().__init__(name=f"gristmill-prefetch-{number}", daemon=True)
        self._pipeline = pipeline
        self._number = number
        self._vector = vector
        self._buffer = buffer
        self._changed = threading.Condition()
        # Outputs or exceptions, whether they are exceptions, and positions after them.
        self._made: collections.deque[tuple[Any, bool, Vector]] = collections.deque()
        self._stopped = False

    def take(self, position: Position, number: int) -> Any:
        """The next output, once it is there; `position` is moved behind it."""
        with self._changed:
            while not self._made:
                self._changed.wait()
            made, failed, vector = self._made[0]
            ended = isinstance(made, StopIteration)
            if not ended:
                position.vectors[number] = vector
                self._made.popleft()
            self._changed.notify()
        if failed:
            raise made
        return made

    def stop(self) -> None:
        """Ask the thread to end after the output in work."""
        with self._changed:
            self._stopped = True
            self._made.clear()
            self._changed.notify()

    def run(self) -> None:
        """Compute until the stream ends or nobody wants more."""
        stream: DatasetStream | None = None
        while True:
            made, failed, vector = None, False, self._vector
            try:
                if stream is None:
                    opened = self._pipeline.open_stream(self._number)
                    opened.seek(self._vector)
                    stream = opened
                made = stream.next()
                vector = stream.vector
            except BaseException as error:
                made, failed = error, True
                vector = self._vector if stream is None else stream.vector
            if not self._hand_over(made, failed, vector):
                break
            if isinstance(made, StopIteration):
                break
        if stream is not None:
            stream.close()

    def _hand_over(self, made: Any, failed: bool, vector: Vector) -> bool:
        with self._changed:
            while len(self._made) >= self._buffer and not self._stopped:
                self._changed.wait()
            if not self._stopped:
                self._made.append((made, failed, vector))
                self._changed.notify()
            return not self._stopped
