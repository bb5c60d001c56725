"""Datasets that group consecutive elements."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gristmill import batching, monitoring
from gristmill._base.argument_checks import check_callable, check_flag, check_integer
from gristmill._base.deferred import deferred_else_eager
from gristmill._base.threads import threads_to_compute
from gristmill._base.types import Alloc, Indices, T
from gristmill._dataset.model.blocks import (
    BlockMapDataset,
    block_of,
    epochs_and_offsets,
    indices_from,
)
from gristmill._dataset.model.error_notes import note_element, note_step
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    NodeIterator,
    share_context,
)
from gristmill._dataset.model.known_length import count_of
from gristmill._dataset.model.node import Dataset, builds, chain_of, with_parents
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.model.spec import ShapeDtypeStruct
from gristmill._dataset.model.states import copy_state
from gristmill._dataset.nodes.deferred_steps import defer_steps
from gristmill._dataset.nodes.record_batches import (
    batches_of,
    column_batches_of,
    packed_rows_of,
)
from gristmill._dataset.nodes.to_iter import PrefetchDatasetIterator, index_iterators_of
from gristmill._engine.column_batches import ColumnBatches
from gristmill._engine.native_batches import NativeBatches
from gristmill._hot import iterators, tree

BatchFn = Callable[[list[Any]], Any]
# Grain's message if a batch of indexed elements cannot be made.
SPARSE = (
    "\nIf you are trying to batch elements after a sparse transformation, such as"
    " `filter`, you need to first convert the dataset to `IterDataset` with"
    " `to_iter_dataset()` and then apply `batch`."
)
# What a failed node was doing, in notes: "while ... made the batch up to element 3".
MAKING_BATCH = "made the batch up to"


class BatchBase(Dataset):
    """A batch dataset of either kind."""

    _KIND = "batch"
    _REPR_ARGS = ("batch_size", "drop_remainder")

    def __init__(
        self,
        parent: Any,
        batch_size: int,
        drop_remainder: bool = False,
        batch_fn: BatchFn | None = None,
    ) -> None:
        super().__init__(parent)
        check_integer("batch_size", batch_size)
        check_flag("drop_remainder", drop_remainder)
        if batch_fn is not None:
            check_callable("batch_fn", batch_fn, " Leave it out to stack leaves.")
        if operator.index(batch_size) <= 0:
            raise ValueError(f"batch_size must be positive. Got {batch_size}.")
        self._batch_size = self._elements_per_output = operator.index(batch_size)
        self._drop_remainder = drop_remainder
        self._batch_fn = batch_fn
        self._update_from_parents()

    @property
    def _element_spec(self) -> Any:
        spec = self._parent._element_spec
        size, drop_remainder = self._batch_size, self._drop_remainder
        function: Any = self._batch_fn
        if isinstance(function, functools.partial):
            function = function.func
        if callable(getattr(function, "output_spec", None)):
            return function.output_spec(spec, size, drop_remainder)
        if function not in (None, batching.make_batch, make_batch):
            raise NotImplementedError(
                "Element spec inference is not supported with custom batching functions"
                " that have no method output_spec(input_spec, batch_size,"
                " drop_remainder)."
            )
        rows = size if drop_remainder else None
        return tree.map_batch(
            lambda leaf: ShapeDtypeStruct((rows, *leaf[0].shape), leaf[0].dtype),
            [spec],
            batching.tree_rules(),
        )


@builds("MapDataset.batch")
class BatchMapDataset(BatchBase, BlockMapDataset[T]):
    """Batches of the parent's elements. No batch spans two epochs."""

    # The number of threads for the parent's deferred steps; None: one for each core.
    _threads: int | None = None

    def _update_from_parents(self) -> None:
        _check_not_sparse(self._parent)
        self._parent_length = len(self._parent)
        if self._drop_remainder:
            self._length = self._parent_length // self._batch_size
        else:
            # As in Grain: floating point rounds the length of an endless parent.
            self._length = math.ceil(self._parent_length / self._batch_size)
        stacks = self._batch_fn is None
        self._columns = column_batches_of(self._parent) if stacks else None
        self._deferred_parent: Any = defer_steps(self._parent) if stacks else None
        self._packed, self._orders = packed_rows_of(self._parent)

    def _with_threads(self, threads: int) -> BatchMapDataset[T]:
        if self._deferred_parent is None:
            return self
        copied = copy.copy(self)
        copied._threads = threads_to_compute(threads)
        return copied

    def _block(self, indices: Indices) -> list[Any]:
        epochs, batches = epochs_and_offsets(indices, self._length)
        # Use Python's integers: the parent's indices may not fit into 64 bits.
        ranges = []
        for epoch, batch in zip(epochs.tolist(), batches.tolist(), strict=True):
            offset = batch * self._batch_size
            size = min(self._batch_size, self._parent_length - offset)
            ranges.append((offset + epoch * self._parent_length, size))
        if self._columns is not None and _may_skip_elements(self._columns):
            # Each is (batch, keys of its records), or None if it must be made of rows.
            results = [self._columns.batch(first, size, None) for first, size in ranges]
            column_batches = [result[0] for result in results if result is not None]
            if len(column_batches) == len(results):
                return column_batches
        if self._deferred_parent is None:
            return self._make_batches(ranges)
        return deferred_else_eager(
            lambda: [self._make_deferred_batch(first, size) for first, size in ranges],
            lambda: self._make_batches(ranges),
        )

    def _make_batches(self, ranges: list[tuple[int, int]]) -> list[Any]:
        """Return the batches of ranges of the parent: (first index, size)."""
        indices = np.concatenate([indices_from(first, size) for first, size in ranges])
        parts: list[Any]
        if self._packed is not None and self._batch_fn is None:
            for order in self._orders:
                indices = order._to_ancestor_indices(indices)
            parts = self._packed._batches(indices, [size for _, size in ranges])
        else:
            elements = iter(block_of(self._parent, indices))
            parts = [list(itertools.islice(elements, size)) for _, size in ranges]
        return [
            self._make_batch(part, first + size - 1) if type(part) is list else part
            for part, (first, size) in zip(parts, ranges, strict=True)
        ]

    def _make_deferred_batch(self, first: int, size: int) -> Any:
        elements = block_of(self._deferred_parent, indices_from(first, size))
        threads = self._threads or threads_to_compute()
        return batching.make_batch(elements, threads=threads)

    def _make_batch(self, elements: list[Any], last_index: int) -> Any:
        """Return a batch; `last_index` is the parent's index of its last element."""
        try:
            return (self._batch_fn or batching.make_batch)(elements)
        except Exception as error:
            if isinstance(error, ValueError):
                error.add_note(SPARSE)
            note_element(error, self, self._parent, last_index, MAKING_BATCH)
            raise


@builds("IterDataset.batch")
class BatchIterDataset(BatchBase, IterDataset[T]):
    """Batches of the parent's elements."""

    def __iter__(self) -> DatasetIterator[T]:
        return BatchDatasetIterator(self)

    def _count_elements(self) -> float:
        count = count_of(self._parent)
        if count == math.inf:
            return count
        full_batches, remainder = divmod(count, self._batch_size)
        return full_batches + (remainder > 0 and not self._drop_remainder)


class BatchDatasetIterator(NodeIterator[T]):
    """Iterates over batches.

    Attributes:
        alloc: Allocates the arrays of stacked batches; None uses NumPy.
    """

    _FOLLOWS_PARENT = True
    _COMBINES_ELEMENTS = True

    def __init__(self, node: BatchBase) -> None:
        deferred_parent = defer_steps(node._parent) if node._batch_fn is None else None
        super().__init__(
            node if deferred_parent is None else with_parents(node, [deferred_parent])
        )
        self.alloc: Alloc | None = None
        self._rules = batching.tree_rules()
        # Makes batches without creating elements; None if that is not possible. The
        # first batch opens it, because a worker limits reading ahead only after it has
        # created the iterator.
        self._batches: NativeBatches | ColumnBatches | None = None
        # The original chain if the parent's steps defer their work, else None.
        self._eager_chain = None if deferred_parent is None else node._parent
        read_threads = (
            feed.read_options.num_threads for feed in index_iterators_of(self._parent)
        )
        self._threads = threads_to_compute(min(read_threads, default=sys.maxsize))
        is_feed = type(self._parent) is PrefetchDatasetIterator
        # True if `_batches` has its final value.
        self._is_open = node._batch_fn is not None or not is_feed

    def __next__(self) -> Any:
        eager_chain = self._eager_chain
        if eager_chain is None:
            return self._make_next_batch()
        state_before = copy_state(self._parent.get_state())
        return deferred_else_eager(
            self._make_next_batch,
            lambda: self._next_without_deferral(eager_chain, state_before),
        )

    def start_prefetch(self) -> None:
        parent: Any = self._parent
        if not (self._is_open or self._closed):
            self._batches, self._is_open = batches_of(parent), True
        if self._batches is None or self._closed:
            parent.start_prefetch()
        else:
            self._batches.start(parent.position, self._node._batch_size)

    def _release(self) -> None:
        if self._batches is not None:
            self._batches.close()

    def _next_without_deferral(self, eager_chain: Any, state_before: Any) -> Any:
        """Return the batch after a state, made from a chain that does not defer.

        The chain's iterator takes the place of the parent until the batch is made.  The
        parent then continues after the batch.
        """
        with suppress_observation():
            iterator = iter(eager_chain)
        share_context(iterator, self._ctx)
        parents, self._parents = self._parents, (iterator,)
        self._eager_chain = None
        try:
            iterator.set_state(state_before)
            return self._make_next_batch()
        finally:
            self._eager_chain, self._parents = eager_chain, parents
            self._parent.set_state(iterator.get_state())
            iterator.close()

    def _make_next_batch(self) -> Any:
        """Return the next batch, without creating its elements if possible."""
        node = self._node
        parent: Any = self._parents[0]
        if not self._is_open:
            self._batches, self._is_open = batches_of(parent), True
        batches = self._batches
        if batches is not None and _may_skip_elements(batches):
            first, count = parent.skip(node._batch_size)
            if not count or (node._drop_remainder and count < node._batch_size):
                raise StopIteration
            try:
                result = batches.batch(first, count, self.alloc)
            except BaseException:
                parent.seek(first)
                raise
            # (batch, keys); otherwise the batch must be made of elements.
            if type(result) is tuple:
                return result[0]
            parent.seek(first)
        elements = iterators.take(parent, node._batch_size)
        count = len(elements)
        if not count or (node._drop_remainder and count < node._batch_size):
            # The deferred work of a dropped batch is never done. This exception makes
            # `deferred_else_eager` do it, which raises the error of a bad element.
            if count and self._eager_chain is not None:
                raise ValueError("elements of a dropped batch may fail, too")
            raise StopIteration
        try:
            if node._batch_fn is not None:
                return node._batch_fn(elements)
            rules, alloc = self._rules, self.alloc
            return batching.make_batch(
                elements, rules=rules, alloc=alloc, threads=self._threads
            )
        except Exception as error:
            note_step(error, self, MAKING_BATCH)
            raise


def _may_skip_elements(batches: NativeBatches | ColumnBatches) -> bool:
    """Return whether batches may be made without elements.

    Metrics count the elements that `SourceMapDataset` reads, so elements are needed if
    metrics are on. Batches of a table in memory are not counted.
    """
    return batches.is_table or not monitoring.is_on()


def _check_not_sparse(dataset: Any) -> None:
    """Raise ValueError if elements may be absent, because batches cannot omit them."""
    for node in chain_of(dataset):
        if node._SPARSE is not None:
            name = node._SPARSE.rpartition(".")[2]
            raise ValueError(
                f"`MapDataset.batch` can not follow `{node._SPARSE}` because `{name}`"
                " can discard elements. Convert `MapDataset` to `IterDataset` with"
                " `to_iter_dataset()` before calling `batch`."
            )


def make_batch(values: Sequence[Any], *, output_to_shared_memory: bool = False) -> Any:
    """Stack the leaves of values, with Grain's arguments.

    Args:
        values: Elements of the same structure, at least 1.
        output_to_shared_memory: Whether to return `SharedMemoryArray`s, except for
            arrays of dtype object. It has no effect on a single value.
    """
    return batching.make_batch(
        values,
        alloc=_allocate_shared if output_to_shared_memory and len(values) > 1 else None,
    )


def _allocate_shared(shape: tuple[int, ...], dtype: Any) -> Any:
    from gristmill.multiprocessing import SharedMemoryArray  # Few programs use it.

    return SharedMemoryArray(shape, dtype)


def batch_and_pad(values: Sequence[Any], *, batch_size: int, pad_value: Any = 0) -> Any:
    """Stack elements, and pad the batch to its size.

    Pass it, with the size, as ``batch_fn`` to `batch` to keep the last elements and
    give all batches the same shape.

    Args:
        values: The elements, from 1 to `batch_size`.
        batch_size: ``B``, the number of rows of the batch.
        pad_value: The value of missing rows, converted to the dtype of each leaf.

    Returns:
        A batch whose leaves have shape ``(B, *S)`` for leaves of shape ``S``.

    Raises:
        ValueError: `values` is empty, or longer than `batch_size`.
        ShapeMismatch: Two elements differ in structure or shape.

    Example:
        >>> import functools
        >>> batch_fn = functools.partial(
        ...     gristmill.experimental.batch_and_pad, batch_size=3
        ... )
        >>> ds = gristmill.MapDataset.range(1, 5).batch(3, batch_fn=batch_fn)
        >>> [batch.tolist() for batch in ds]
        [[1, 2, 3], [4, 0, 0]]
    """
    if not values:
        raise ValueError("Cannot batch 0 values.")
    if len(values) > batch_size:
        raise ValueError(f"Cannot batch {len(values)} values to {batch_size}.")
    batch = batching.make_batch(values)
    missing = batch_size - len(values)
    if not missing:
        return batch

    def pad(leaves: list[Any]) -> Any:
        (rows,) = leaves
        padding = np.full((missing, *rows.shape[1:]), pad_value, rows.dtype)
        return np.concatenate([rows, padding])

    return tree.map_batch(pad, [batch], batching.tree_rules())
