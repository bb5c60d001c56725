"""Iterators over datasets, whose state can be saved."""

from __future__ import annotations

import abc
import functools
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from gristmill import checkpoint
from gristmill._base.types import T
from gristmill._dataset.model import observer, states
from gristmill._dataset.model.accountable import Accountable
from gristmill._dataset.model.error_notes import note_step
from gristmill._dataset.model.names import node_text
from gristmill._dataset.model.options import IteratorContext
from gristmill._dataset.model.stats import Stats
from gristmill._engine.record_errors import SHOWN_RECORDS
from gristmill._engine.workers import check_workers
from gristmill.bad_records import BadRecords

if TYPE_CHECKING:
    from gristmill._base.report import Report


class _Errors:
    """The records that `IterDataset.on_error` left out or replaced.

    This is not a property, so that a user's iterator may set an attribute of this name:
    an instance's attribute hides a class attribute that is not a data descriptor.
    """

    def __get__(self, iterator: Any, owner: type) -> BadRecords:
        counts: list[BadRecords] = []
        chain = [iterator]
        for each in chain:
            # An iterator that measures has the attributes of the one that it measures:
            # do not go on to its parents, which would count the records twice.
            if (counter := getattr(each, "_error_counter", None)) is not None:
                counts.append(counter.bad_records)
            else:
                chain += getattr(each, "_parents", ())
        last = [record for each in counts for record in each.last]
        return BadRecords(
            sum(each.count for each in counts), tuple(last[-SHOWN_RECORDS:])
        )


class DatasetIterator(checkpoint.Checkpointable, Accountable, Iterator[T], Generic[T]):
    """Iterates over an `IterDataset`; its position can be saved and restored.

    A subclass calls ``super().__init__(parents)`` and implements ``__next__``,
    `get_state` and `set_state`.  Not thread-safe.

    Args:
        parents: The iterators that this one reads; empty for a source.

    Example:
        >>> iterator = iter(gristmill.MapDataset.range(3).to_iter_dataset())
        >>> next(iterator), iterator.get_state()
        (0, {'next_index': 1})
    """

    errors = _Errors()
    # Whether `set_state` was called, so that iteration does not start from the
    # beginning.
    _from_state = False
    # Times some of the calls, if this is the outermost iterator of a chain. Set by
    # `gristmill._observe`; None: this iterator is not observed.
    _watch: Any = None
    # Whether this iterator works on the last element that the parent returned.
    _FOLLOWS_PARENT: ClassVar[bool] = False
    # Whether an element of this iterator is made from several of the parent's.
    _COMBINES_ELEMENTS: ClassVar[bool] = False

    def __init__(
        self, parents: DatasetIterator[Any] | Sequence[DatasetIterator[Any]] = ()
    ) -> None:
        super().__init__()
        self._closed = False
        if isinstance(parents, DatasetIterator):
            parents = (parents,)
        self._parents: tuple[DatasetIterator[Any], ...] = tuple(parents)
        # One object, shared by all iterators of the chain.
        self._ctx = _common_context(self._parents)

    @property
    def _parent(self) -> DatasetIterator[Any]:
        (parent,) = self._parents
        return parent

    def __iter__(self) -> DatasetIterator[T]:
        return self

    @abc.abstractmethod
    def __next__(self) -> T:
        """Return the next element.

        Raises:
            StopIteration: There are no more elements.
        """

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Return the position as a JSON-compatible dict with a fixed structure."""

    @abc.abstractmethod
    def set_state(self, state: Any) -> None:
        """Continue at a position that `get_state` returned.

        Args:
            state: The result of `get_state` of an iterator over an equal chain.

        Raises:
            StateMismatch: The state is invalid, or of another chain. Nothing is
                changed.
        """

    def __repr__(self) -> str:
        return node_text(self)

    def start_prefetch(self) -> None:
        """Start working in the background, if a part of the chain supports it."""
        for parent in self._parents:
            parent.start_prefetch()

    def set_workers(self, count: int) -> None:
        """Change the number of workers of each `mp_prefetch`.

        Elements, their order and states do not change, because they depend only on the
        number of streams.  The old workers continue until the new ones have started, so
        that the consumer does not wait.  Outputs that the old workers have prefetched
        by then are computed again.

        Args:
            count: The number of processes, or of actors of a
                `gristmill.ray.RayWorkers`; at least 1.

        Raises:
            ValueError: `count` is less than 1, or no part of the chain runs in workers.
        """
        check_workers(count)
        if not self._set_workers(int(count)):
            raise ValueError(
                f"set_workers needs a chain with workers, but no part of {self} runs in"
                " workers. Add `mp_prefetch` to the chain."
            )

    def _set_workers(self, count: int) -> bool:
        """Change the number of workers; return whether there are any."""
        has_workers = [parent._set_workers(count) for parent in self._parents]
        return any(has_workers)

    def report(self, verify: bool = False, seconds: float = 2.0) -> Report:
        """Report what limits the rate of elements, the time spent waiting, and more.

        Some calls of ``next``, and some blocks that are read by index, are always
        timed. With `experimental.DatasetOptions(execution_tracking_mode=...)`, all
        calls and all nodes are timed.

        Args:
            verify: Whether to try changes, for up to five times `seconds`. This runs
                fresh iterators over the unchanged pipeline, with outputs from a cache,
                with one more worker, and with each change that `Report.untried` would
                list otherwise.  The position of this iterator does not change.
            seconds: The duration of each of these runs, in s.

        Returns:
            A `Report`. Its `checks` are the changes tried, and its `advice` those that
            helped.

        Raises:
            ValueError: This iterator is part of another iterator's chain, or `seconds`
                is not positive.

        Example:
            >>> iterator = iter(gristmill.MapDataset.range(100).batch(10))
            >>> for batch in iterator:
            ...     pass
            >>> iterator.report().outputs
            10
        """
        report: Report = observer.get_observer().report_of(self, verify, seconds)
        return report

    def close(self) -> None:
        """Stop threads and workers. It is safe to call this again."""
        if getattr(self, "_closed", True):
            return
        self._closed = True
        self._release()
        for parent in self._parents:
            parent.close()

    def _release(self) -> None:
        """Release this iterator's resources, except for its parents. Called once."""

    def _abandon(self) -> None:
        """Stop background work of an iterator that another thread uses.

        The calling thread does not own the iterator. An override closes only what any
        thread may close: `PrefetchThread.stop`, for example, wakes the owner if it
        waits in ``next``. The owner calls `close` later.
        """
        for parent in self._parents:
            parent._abandon()

    def _keep_after_end(self) -> None:
        """Keep resources at the end for another epoch: `set_state` will be called."""
        for parent in self._parents:
            parent._keep_after_end()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At interpreter exit, workers end by themselves. Globals of modules may already
        # be None, so the function is a default argument.
        if not is_finalizing():
            self.close()

    def _assert_not_closed(self) -> None:
        if self._closed:
            raise ValueError(f"Trying to advance a closed iterator: '{self}'.")

    @functools.cached_property
    def _stats(self) -> Stats:
        return Stats(weakref.ref(self))

    def _note_failure(self, error: BaseException) -> None:
        """Add a note that this iterator failed for the last element that it read."""
        note_step(error, self)

    def _get_next_index(self) -> int:
        raise NotImplementedError(f"{self} has no index of its next element.")

    def _set_next_index(self, index: int) -> None:
        raise NotImplementedError(f"{self} cannot go to element {index}.")


class CheckedIterator(states.Checked, DatasetIterator[T]):
    """An iterator that checks states before it changes anything.

    By default its state is the parent's state.
    """

    def get_state(self) -> Any:
        return self._parent.get_state()


class NodeIterator(CheckedIterator[T]):
    """An iterator over a built-in node, with iterators over the node's parents."""

    def __init__(self, node: Any) -> None:
        super().__init__([iter(parent) for parent in node._parents])
        self._node = node

    def __str__(self) -> str:
        return f"{type(self).__name__}{self._node._arguments_text()}"

    def _get_next_index(self) -> int:
        stride: int | None = self._node._elements_per_output
        if stride is None:
            return super()._get_next_index()
        # Round up: the last output may have fewer elements.
        return -(-get_next_index(self._parent) // stride)

    def _set_next_index(self, index: int) -> None:
        if self._node._elements_per_output is None:
            return super()._set_next_index(index)
        set_next_index(self._parent, index * self._node._elements_per_output)


class CountingIterator(NodeIterator[T]):
    """An iterator whose state is the parent's position and a count."""

    _COUNTER_NAME: ClassVar[str]
    counter: int = 0

    def get_state(self) -> Any:
        return {"parent": self._parent_state(), self._COUNTER_NAME: self.counter}

    def _check_state(self, state: Any) -> None:
        count = {self._COUNTER_NAME: states.count}
        states.check_values(self, state, states.fields(parent=states.parent, **count))

    def _go_to(self, state: Any) -> None:
        self._parent.set_state(state["parent"])
        self.counter = state[self._COUNTER_NAME]

    def _parent_state(self) -> Any:
        return self._parent.get_state()


class ElementCountingIterator(CountingIterator[T]):
    """An iterator that counts elements, which correspond one-to-one to its parent's."""

    _FOLLOWS_PARENT = True

    def _get_next_index(self) -> int:
        return self.counter

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)
        self.counter = index


class ForwardingIterator(CheckedIterator[T]):
    """An iterator that returns its only parent's elements, with the same indices."""

    _FOLLOWS_PARENT = True

    @property
    def alloc(self) -> Any:
        """The parent's function that allocates the arrays of batches, if it has one."""
        return self._parent.alloc  # type: ignore[attr-defined]

    @alloc.setter
    def alloc(self, alloc: Any) -> None:
        self._parent.alloc = alloc  # type: ignore[attr-defined]

    def _get_next_index(self) -> int:
        return get_next_index(self._parent)

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)


def _common_context(parents: Sequence[DatasetIterator[Any]]) -> IteratorContext:
    """Merge the contexts of all parents and their ancestors into one.

    This changes the first parent's context, and sets it in all of the others.
    """
    if not parents:
        return IteratorContext()
    context = parents[0]._ctx
    others = list(parents[1:])
    for parent in others:
        context.merge(parent._ctx)
    for each in others:
        each._ctx = context
        others += each._parents
    return context


def share_context(iterator: Any, context: IteratorContext) -> None:
    """Set the context of an iterator and its ancestors to another chain's."""
    iterator._ctx = context
    for parent in iterator._parents:
        share_context(parent, context)


def get_next_index(ds_iter: DatasetIterator[Any]) -> int:
    """Return the index of the next element of an iterator.

    Args:
        ds_iter: The iterator.

    Returns:
        The index, at least 0, over all epochs.

    Raises:
        NotImplementedError: The chain is not one-to-one (it filters, packs, mixes...).

    Example:
        >>> iterator = iter(gristmill.MapDataset.range(6).to_iter_dataset())
        >>> next(iterator), get_next_index(iterator)
        (0, 1)
    """
    return ds_iter._get_next_index()


def set_next_index(ds_iter: DatasetIterator[Any], index: int) -> None:
    """Set the next element of an iterator to element `index`.

    Args:
        ds_iter: The iterator.
        index: The index over all epochs, at least 0.

    Raises:
        NotImplementedError: The chain is not one-to-one (it filters, packs, mixes...).

    Example:
        >>> iterator = iter(gristmill.MapDataset.range(6).to_iter_dataset())
        >>> set_next_index(iterator, 4)
        >>> list(iterator)
        [4, 5]
    """
    ds_iter._set_next_index(index)
