"""Iterates over a `MapDataset` in the order of its indices.

Elements are computed in blocks that take about a millisecond.  Threads prefetch slow
elements, see `gristmill._engine.reading`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from gristmill._base.argument_checks import check_flag, check_options
from gristmill._base.epoch_context import epoch_context, use_epoch
from gristmill._base.threads import reads_thread_name
from gristmill._base.types import Int64Array, T
from gristmill._dataset.model import states
from gristmill._dataset.model.blocks import block_of
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import CheckedIterator, DatasetIterator
from gristmill._dataset.model.known_length import UnknownLength, count_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import ParentSpec, builds, chain_of
from gristmill._dataset.nodes.map import check_dropped
from gristmill._dataset.nodes.with_options import options_of
from gristmill._engine.reading import Reading, ReadResult, read_each
from gristmill._hot import iterators
from gristmill._hot.block_call import BlockLengthError
from gristmill.options import ReadOptions
from gristmill.sources._checks import length_of

MAX_BLOCK = 512  # The most elements of a block by default.
BLOCK_NS = 1_000_000  # The wanted duration of a block.


@builds("MapDataset.to_iter_dataset")
class PrefetchIterDataset(ParentSpec, IterDataset[T]):
    """The elements of a `MapDataset`, for one epoch; see its `to_iter_dataset`."""

    _KIND = "prefetch"
    _IS_SELECTION = True
    _REPR_ARGS = ("read_options", "allow_nones")
    # The most elements that an iterator computes at once.
    _max_block = MAX_BLOCK

    def __init__(
        self,
        parent: MapDataset[T],
        *,
        read_options: ReadOptions | None = None,
        allow_nones: bool = False,
    ) -> None:
        super().__init__(parent)
        if read_options is not None:
            example = "ReadOptions(num_threads=4)"
            check_options("read_options", read_options, ReadOptions, example)
        check_flag("allow_nones", allow_nones)
        for node in chain_of(parent):
            if hasattr(node, "_reader"):  # Raises if the source has no length.
                length_of(node._reader)
        self._read_options = ReadOptions() if read_options is None else read_options
        self._allow_nones = allow_nones

    def __iter__(self) -> DatasetIterator[T]:
        return PrefetchDatasetIterator(self)

    def _count_elements(self) -> float:
        if not self._allow_nones:
            for node in chain_of(self._parent):
                if node._SPARSE is not None:
                    raise UnknownLength(f"{node._SPARSE} may drop elements.")
        return count_of(self._parent)


class BlockMeter(Protocol):
    """Reads some of the blocks of a dataset, and measures them.

    Attributes:
        due_ns: The `time.perf_counter_ns` from which the next block is measured.
    """

    due_ns: int

    def read(self, indices: Int64Array) -> list[Any]:
        """Return the elements at `indices`, of shape (n,)."""

    def note_failure(self) -> None:
        """Record that reading an element raised an exception."""


class PrefetchDatasetIterator(iterators.BlockFeeder, CheckedIterator[T]):
    """Iterates over the elements of a `MapDataset`.

    The compiled `BlockFeeder` defines `__next__` and `position`, the number of elements
    returned or skipped.  It calls `_refill` and `_check_dropped`.

    Attributes:
        dataset: The dataset that is read, with the threads of the read options.
    """

    def __init__(self, node: PrefetchIterDataset[T]) -> None:
        threads = node._read_options.num_threads
        dataset: MapDataset[T] = node._parent._with_threads(threads)
        DatasetIterator.__init__(self)
        self._ctx.dataset_options = options_of(dataset)
        iterators.BlockFeeder.__init__(self, node._allow_nones)
        self._node = node
        self.dataset = dataset
        self._length = len(dataset)
        # The index at which the source has ended, else its length.
        self._source_end = self._length
        self._min_block = preferred_block(dataset)
        self._default_max_block = _round_down(node._max_block, self._min_block)
        self._max_block = self._default_max_block
        # The maximum size of the next block: it takes about `BLOCK_NS`.
        self._block_size = self._min_block
        # The index of the next element and its exception, if it has already failed.
        self._failure: tuple[int, Exception] | None = None
        # No block crosses this index, so that a worker does not compute past its unit.
        self._block_limit = self._length
        self._look_ahead = True  # False after `restrict_to`.
        self._elements = _Elements(dataset)
        # During `take_block`: receives each element of a block when it is computed.
        self._block_so_far: list[Any] | None = None
        self._reading = self._new_reading()

    def get_state(self) -> Any:
        """Return the index of the next element, counting absent elements, as a dict."""
        return {"next_index": self.position}

    def _check_state(self, state: Any) -> None:
        states.check_keys(self, state, ["next_index"])
        index = states.integer(self, state["next_index"], "next_index")
        if not 0 <= index <= self._length:
            raise IndexError(
                f"Checkpoint `next_index` {index} is out of range for dataset of length"
                f" {self._length}."
            )

    def _go_to(self, state: Any) -> None:
        self._reading.forget()
        self._failure = None
        self._source_end = self._length
        self._block_size = min(self._min_block, self._max_block)
        self.seek(state["next_index"])

    def start_prefetch(self) -> None:
        self._reading.start(self.position + self.count_buffered())

    def _release(self) -> None:
        if hasattr(self, "_reading"):  # Unset if __init__ failed.
            self._reading.close()
            self.seek(self.position)

    def _abandon(self) -> None:
        self._reading.close()  # Any thread may call this.

    def __str__(self) -> str:
        return type(self).__name__ + self._node._arguments_text()

    @property
    def meter(self) -> BlockMeter | None:
        """The object that measures some of the blocks, or None."""
        return self._elements.meter

    @meter.setter
    def meter(self, meter: BlockMeter | None) -> None:
        self._elements.meter = meter

    @property
    def read_options(self) -> ReadOptions:
        """The options of the threads that read ahead."""
        return self._node._read_options

    @property
    def looks_ahead(self) -> bool:
        """True if threads may prefetch elements."""
        return self._look_ahead

    @property
    def capacity(self) -> int:
        """The maximum number of prefetched elements; 0 without threads."""
        return self._reading.capacity

    def count_ready(self) -> int:
        """Return the number of elements that are ready."""
        ahead = self.count_buffered()
        return ahead + self._reading.ready(self.position + ahead)

    def _get_next_index(self) -> int:
        return self.position

    def _set_next_index(self, index: int) -> None:
        self.set_state({"next_index": index})

    def skip(self, count: int) -> tuple[int, int]:
        """Skip up to `count` indices; return the first one and the number skipped."""
        self._assert_not_closed()
        first = self.position
        count = min(count, self._length - first)
        self.seek(first + count)
        return first, count

    def set_max_block(self, count: int | None = None) -> None:
        """Compute at most `count` elements at once; None restores the default."""
        self._max_block = self._default_max_block if count is None else count
        block_size = self._min_block if count is None else self._block_size
        self._block_size = min(block_size, self._max_block)

    def restrict_to(self, first: int, count: int) -> None:
        """Go to index `first`, stop looking ahead, and end a block at `first + count`.

        Used by a worker that computes only these elements.
        """
        if self._look_ahead:
            self._look_ahead = False
            self._reading.close()
            self._reading = self._new_reading()
        self._failure = None
        self._source_end = self._length
        self._block_limit = min(first + count, self._length)
        self.seek(first)

    def _last_element_read(self) -> tuple[MapDataset[T], int]:
        """Return the dataset, and the index of the element returned last."""
        return self.dataset, self.position - 1

    def _new_reading(self) -> Reading:
        """Return the object that reads elements, in threads if that is faster."""
        return Reading(
            self._elements,
            self._node._read_options,
            lambda first, count: range(first, first + count),
            self._length,
            look_ahead=self._look_ahead,
            min_block=self._min_block,
        )

    def take_block(self, out: list[Any]) -> list[Any]:
        """Return the next block of elements; absent ones are None.

        If an element fails, return those before it; `next` then raises its error. The
        caller must call `seek` to mark the elements as consumed.

        Args:
            out: An empty list. Elements are appended one by one when they are
                computed, so that another thread can read them. The list stays empty if
                they are all computed at once.
        """
        first = self.position
        self._block_so_far = out
        try:
            return self._refill(first)
        except Exception as error:
            self._failure = first, error
            self.position = first  # Undo the increment of `_refill`.
            return []
        finally:
            self._block_so_far = None

    def _check_dropped(self, skipped: int) -> None:
        check_dropped(skipped, str(self), self._ctx.dataset_options)

    def _refill(self, first: int) -> list[Any]:
        """Return a block of elements from index `first` on; see `BlockFeeder`."""
        self._assert_not_closed()
        end = self._block_limit if first < self._block_limit else self._length
        end = min(end, self._source_end)
        if first >= end:
            return []
        # Without look-ahead, threads may read a worker's whole unit as one block.
        max_count = self._block_size if self._look_ahead else self._max_block
        start_ns = time.perf_counter_ns()
        try:
            elements = self._compute_block(first, min(max_count, end - first), start_ns)
        except StopIteration:
            # Until `_go_to` or `restrict_to` resets this.
            self._source_end = first
            return []
        except Exception:
            self.position += 1  # The failed element counts, as `BlockFeeder` requires.
            raise
        duration_ns = time.perf_counter_ns() - start_ns
        if duration_ns < BLOCK_NS / 2:
            self._block_size = min(2 * self._block_size, self._max_block)
        elif duration_ns > 2 * BLOCK_NS:
            count = int(len(elements) * BLOCK_NS / duration_ns)
            block_size = _round_down(count, self._min_block)
            self._block_size = min(block_size, self._max_block)
            self._reading.probe_soon()  # The source may have begun to wait.
        return elements

    def _compute_block(self, first: int, max_count: int, now_ns: int) -> list[Any]:
        """Return up to `max_count` next elements; fewer if one fails or is slow."""
        if self._failure is not None:
            index, error = self._failure
            self._failure = None
            if index == first:
                raise error
        indices = np.arange(first, first + max_count, dtype=np.int64)
        read = self._reading.read(first, indices)
        if read is None:  # The source does not wait, so this thread reads.
            out = [] if self._block_so_far is None else self._block_so_far
            indices = indices[: self._block_size]
            try:
                return self._elements.read(indices, now_ns, out)
            except Exception as error:
                # Find the failed element by computing the remaining ones one by one.
                # Raise a BlockLengthError of the whole block instead: no single element
                # caused it. If `out` has elements, the error belongs to the next one.
                is_single = len(indices) == 1
                if not out and (is_single or isinstance(error, BlockLengthError)):
                    raise
            others, failure = read_each(self._elements, indices[len(out) :].tolist())
            read = ReadResult(out + others, failure)
        elements, failure = read
        if failure is not None:
            if not elements:
                raise failure
            self._failure = (first + len(elements), failure)
        return elements


def _round_down(count: int, multiple: int) -> int:
    """Round down to a multiple of `multiple`, but not to 0."""
    return max(count - count % multiple, multiple)


def preferred_block(dataset: MapDataset[Any]) -> int:
    """Return the smallest block that gives each step its preferred element count."""
    return max(
        -(-getattr(node, "_preferred_block", 1) // elements)
        for node, elements in _elements_of_nodes(dataset)
    )


def max_source_elements(dataset: MapDataset[Any]) -> int:
    """Return the maximum number of source elements that make one element."""
    return max(elements for _, elements in _elements_of_nodes(dataset))


def _elements_of_nodes(dataset: MapDataset[Any]) -> Iterator[tuple[Any, int]]:
    """Yield each node, and how many of its elements make one element of `dataset`."""
    nodes: list[tuple[Any, int]] = [(dataset, 1)]
    for node, elements in nodes:
        yield node, elements
        per_output = getattr(node, "_elements_per_output", None) or 1
        nodes += [(parent, elements * per_output) for parent in node._parents]


def index_iterators_of(iterator: Any) -> Iterator[PrefetchDatasetIterator[Any]]:
    """Yield the iterators of a chain that read a dataset by index."""
    if isinstance(iterator, PrefetchDatasetIterator):
        yield iterator
    for parent in getattr(iterator, "_parents", ()):
        yield from index_iterators_of(parent)


class _Elements:
    """Reads elements of a dataset in blocks, or one by one for threads.

    Attributes:
        allows_threads: False if a source of the chain must not be read by threads.
        reads_thread_name: Whether a source or a step reads its thread's name.
        meter: The object that measures some of the blocks, or None.
    """

    def __init__(self, dataset: MapDataset[Any]) -> None:
        self._dataset = dataset
        self._epoch = epoch_context.epoch
        sources = [getattr(node, "_source", None) for node in chain_of(dataset)]
        self.allows_threads = all(getattr(s, "allows_threads", True) for s in sources)
        steps = [getattr(node, "_transform", None) for node in chain_of(dataset)]
        self.reads_thread_name = any(map(reads_thread_name, [*sources, *steps]))
        self.meter: BlockMeter | None = None

    def read(
        self, indices: Int64Array, now_ns: int, out: list[Any] | None = None
    ) -> list[Any]:
        """Return the elements at `indices`, see `block_of`; `now_ns` is the time."""
        if epoch_context.epoch != self._epoch:  # The calling thread is in another one.
            with use_epoch(self._epoch):
                return self.read(indices, now_ns, out)
        meter = self.meter
        try:
            if meter is None or now_ns < meter.due_ns:
                return block_of(self._dataset, indices, out)
            return meter.read(indices)
        except Exception:
            if meter is not None:
                meter.note_failure()
            raise

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return self.read(np.array(indices, np.int64), time.perf_counter_ns())
