"""DatasetIterator: what iterates over a dataset, and has a state."""

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
from gristmill._dataset.model.failing import note_step
from gristmill._dataset.model.names import node_text
from gristmill._dataset.model.options import IteratorContext
from gristmill._dataset.model.stats import Stats
from gristmill._engine.record_errors import LAST_KEPT
from gristmill._engine.workers import check_workers
from gristmill.bad_records import BadRecords

if TYPE_CHECKING:
    from gristmill._base.report import Report


class _Errors:
    """The records that `IterDataset.on_error` left out or replaced.

    Not a property, so that a user's iterator may have an attribute of this name.
    """

    def __get__(self, iterator: Any, owner: type) -> BadRecords:
        found = [parent.errors for parent in iterator._parents] if iterator else []
        last = [record for each in found for record in each.last]
        return BadRecords(sum(each.count for each in found), tuple(last[-LAST_KEPT:]))


class DatasetIterator(checkpoint.Checkpointable, Iterator[T], Generic[T]):
    """Iterates over an `IterDataset`; its position can be saved and restored.

    A subclass calls ``super().__init__(parents)`` and implements ``__next__``,
    `get_state` and `set_state`.  Not thread-safe.

    Args:
        parents: The iterators whose elements this one uses; none for a source.

    Example:
        >>> iterator = iter(gristmill.MapDataset.range(3).to_iter_dataset())
        >>> next(iterator), iterator.get_state()
        (0, {'next_index': 1})
    """

    errors = _Errors()
    # Whether a state was set, so that it does not begin at the beginning.
    _from_state = False
    # Times some of the calls; of the outermost iterator of a chain.
    _watch: Any = None
    # Whether the last element of the parent's is the one that this works on.
    _TAKES_IN_STEP: ClassVar[bool] = False
    # Whether that is the last one of several.
    _BATCHES: ClassVar[bool] = False

    def __init__(
        self, parents: DatasetIterator[Any] | Sequence[DatasetIterator[Any]] = ()
    ) -> None:
        super().__init__()
        self._closed = False
        if isinstance(parents, DatasetIterator):
            parents = (parents,)
        self._parents: tuple[DatasetIterator[Any], ...] = tuple(parents)
        self._ctx = _common_context(self._parents)

    @property
    def _parent(self) -> DatasetIterator[Any]:
        (parent,) = self._parents
        return parent

    def __iter__(self) -> DatasetIterator[T]:
        return self

    @abc.abstractmethod
    def __next__(self) -> T:
        """The next element.

        Raises:
            StopIteration: There is none.
        """

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """The position: a dict that JSON can hold, of the same structure always."""

    @abc.abstractmethod
    def set_state(self, state: Any) -> None:
        """Continue at a position that `get_state` returned.

        Raises:
            StateMismatch: It is a state of another chain, or none; nothing is changed.
        """

    def __repr__(self) -> str:
        return node_text(self)

    def start_prefetch(self) -> None:
        """Begin to work in the background, where a part of the chain can."""
        for parent in self._parents:
            parent.start_prefetch()

    def set_workers(self, count: int) -> None:
        """Let `count` workers compute what comes next, of each `mp_prefetch`.

        Elements, order and states stay what they are: streams say them.  The workers
        that there are go on until the others have started, so that nobody waits; what
        they have computed ahead by then is computed again.

        Args:
            count: Processes, or of a `gristmill.ray.RayWorkers` actors; at least 1.

        Raises:
            ValueError: It is less than 1, or no part of the chain runs in workers.
        """
        check_workers(count)
        if not self._set_workers(int(count)):
            raise ValueError(
                f"No part of {self} runs in workers, whose number could change. Put"
                " `mp_prefetch` into the chain."
            )

    def _set_workers(self, count: int) -> bool:
        """Do what `set_workers` says; returns whether there are workers."""
        there_are = [parent._set_workers(count) for parent in self._parents]
        return any(there_are)

    def report(self, verify: bool = False, seconds: float = 2.0) -> Report:
        """What limits how fast elements come, how long they were waited for, and more.

        Some calls of ``next`` are always timed, and some blocks of what is read by
        index; with `experimental.DatasetOptions(execution_tracking_mode=...)` all
        are, and every node.

        Args:
            verify: Whether to try changes, for up to five times `seconds`: on
                fresh iterators, the pipeline as it is, with outputs from a cache, with
                one more worker, and with each change that `Report.untried` names
                otherwise.  This iterator stays where it is.
            seconds: How long each of these runs takes, in s.

        Returns:
            A `Report`; its `checks` are what was tried, and its
            `advice` what helped.

        Raises:
            ValueError: This is part of a chain that another iterator iterates over, or
                `seconds` is not positive.

        Example:
            >>> iterator = iter(gristmill.MapDataset.range(100).batch(10))
            >>> for batch in iterator:
            ...     pass
            >>> iterator.report().outputs
            10
        """
        report: Report = observer.current().report_of(self, verify, seconds)
        return report

    def close(self) -> None:
        """End threads and workers.  May be called again."""
        if getattr(self, "_closed", True):
            return
        self._closed = True
        self._release()
        for parent in self._parents:
            parent.close()

    def _release(self) -> None:
        """End what this iterator has beside its parents; called once."""

    def _abandon(self) -> None:
        """End the threads that work for this iterator, which another thread uses.

        That one closes it later.  Changes nothing that it could use.
        """
        for parent in self._parents:
            parent._abandon()

    def _keep_after_end(self) -> None:
        """Keep at the end what a next epoch needs, too: `set_state` will follow."""
        for parent in self._parents:
            parent._keep_after_end()

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, workers end by themselves, and what modules held
        # is gone: hence the function is held here.
        if not ending():
            self.close()

    def _assert_not_closed(self) -> None:
        if self._closed:
            raise ValueError(f"Trying to advance a closed iterator: '{self}'.")

    @functools.cached_property
    def _stats(self) -> Stats:
        return Stats(weakref.ref(self))

    def _failed(self, error: BaseException) -> None:
        """Note on an exception that this raised it for the element it took last."""
        note_step(error, self)

    def _get_next_index(self) -> int:
        raise NotImplementedError(f"{self} has no index of its next element.")

    def _set_next_index(self, index: int) -> None:
        raise NotImplementedError(f"{self} cannot go to element {index}.")


class CheckedIterator(states.Checked, DatasetIterator[T]):
    """An iterator whose states are looked at before anything is changed.

    By default it keeps nothing itself: its state is the parent's.
    """

    def get_state(self) -> Any:
        return self._parent.get_state()


class NodeIterator(CheckedIterator[T]):
    """An iterator over a built-in node; all but its position is the node's."""

    def __init__(self, node: Any) -> None:
        super().__init__([iter(parent) for parent in node._parents])
        self._node = node

    def __str__(self) -> str:
        return f"{type(self).__name__}{self._node._arguments_text()}"

    def _get_next_index(self) -> int:
        stride: int | None = self._node._stride
        if stride is None:
            return super()._get_next_index()
        return -(-get_next_index(self._parent) // stride)

    def _set_next_index(self, index: int) -> None:
        if self._node._stride is None:
            return super()._set_next_index(index)
        set_next_index(self._parent, index * self._node._stride)


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
    """An iterator that counts its parent's elements, each of which becomes one."""

    _TAKES_IN_STEP = True

    def _get_next_index(self) -> int:
        return self.counter

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)
        self.counter = index


class ForwardingIterator(CheckedIterator[T]):
    """An iterator that gives its one parent's elements, each at the same index."""

    _TAKES_IN_STEP = True

    @property
    def alloc(self) -> Any:
        """The function that makes the arrays of batches, if the parent has one."""
        return self._parent.alloc  # type: ignore[attr-defined]

    @alloc.setter
    def alloc(self, alloc: Any) -> None:
        self._parent.alloc = alloc  # type: ignore[attr-defined]

    def _get_next_index(self) -> int:
        return get_next_index(self._parent)

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)


def _common_context(parents: Sequence[DatasetIterator[Any]]) -> IteratorContext:
    """The one context of all parents and their ancestors."""
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
    """Give an iterator and those above it the context of another chain."""
    iterator._ctx = context
    for parent in iterator._parents:
        share_context(parent, context)


def get_next_index(ds_iter: DatasetIterator[Any]) -> int:
    """The index of the element that an iterator gives next.

    Raises:
        NotImplementedError: The chain is not one-to-one (it filters, packs, mixes...).

    Example:
        >>> iterator = iter(gristmill.MapDataset.range(6).to_iter_dataset())
        >>> next(iterator), get_next_index(iterator)
        (0, 1)
    """
    return ds_iter._get_next_index()


def set_next_index(ds_iter: DatasetIterator[Any], index: int) -> None:
    """Make element `index` the next one that an iterator gives.

    Raises:
        NotImplementedError: The chain is not one-to-one (it filters, packs, mixes...).

    Example:
        >>> iterator = iter(gristmill.MapDataset.range(6).to_iter_dataset())
        >>> set_next_index(iterator, 4)
        >>> list(iterator)
        [4, 5]
    """
    ds_iter._set_next_index(index)
