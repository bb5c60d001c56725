"""Skips elements that fail, or substitutes others for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from gristmill._base.types import T
from gristmill._dataset.model.error_notes import record_of
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    NodeIterator,
    get_next_index,
    set_next_index,
)
from gristmill._dataset.model.known_length import UnknownLength
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.node import ParentSpec, builds, chain_of, is_ours
from gristmill._dataset.model.states import copy_state
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset, index_iterators_of
from gristmill._engine.record_errors import (
    ErrorCounter,
    RecordErrors,
    substitute_candidates,
)
from gristmill._hot import cancellation
from gristmill._hot.error_location import location_of
from gristmill.bad_records import ErrorPolicy, OnError
from gristmill.errors import TooManyErrors

# What to do about too many errors.
ADVICE = (
    "Repair the data, or restore the last state that you saved to a chain with a larger"
    " max_errors."
)


@builds("IterDataset.on_error")
class OnErrorIterDataset(ParentSpec, IterDataset[T]):
    """The parent's elements without those that fail; see `IterDataset.on_error`."""

    def __init__(
        self,
        parent: IterDataset[T],
        on_error: OnError,
        max_errors: Any,
        quarantine: Any,
    ) -> None:
        super().__init__(parent)
        self.policy = ErrorPolicy(on_error, max_errors, quarantine)
        for node in chain_of(parent):
            if isinstance(node, OnErrorIterDataset):
                raise ValueError(
                    "on_error was called twice for one chain, expected once. Remove one"
                    " of the calls."
                )
            _check_single(node)
            # The datasets of an interleaving of a list.
            for part in _datasets_of(node):
                check_part(part, True)
        if self._substitutes:
            _check_indices(parent)

    @property
    def _substitutes(self) -> bool:
        return self.policy.on_error == "substitute"

    def __iter__(self) -> DatasetIterator[T]:
        return OnErrorDatasetIterator(self)

    def _arguments_text(self) -> str:
        return f"(on_error={self.policy.on_error!r})"

    def _count_elements(self) -> float:
        if self.policy.on_error == "skip":
            raise UnknownLength("on_error('skip') may drop elements.")
        count: float = self._parent._count_elements()
        return count


class OnErrorDatasetIterator(NodeIterator[T]):
    """Iterates over the parent's elements without those that fail.

    The state is the parent's.
    """

    _FOLLOWS_PARENT = True

    def __init__(self, node: OnErrorIterDataset[T]) -> None:
        super().__init__(node)
        self._substitutes = node._substitutes
        self._ctx.leaves_out_errors = True
        source = node_line([*chain_of(node)][-1])
        # Counts the bad records.  None in a worker: `_errors` collects them for the
        # parent process, which counts them.
        self._error_counter: ErrorCounter | None = ErrorCounter(
            node.policy, source, ADVICE
        )
        # In this process, all elements are of one stream, 0.
        self._errors = RecordErrors(0, node.policy.on_error)

    def report_to(self, errors: RecordErrors) -> None:
        """Collect bad records for the parent process, which counts them."""
        self._errors, self._error_counter = errors, None

    def __next__(self) -> T:
        parent = self._parents[0]
        while True:
            try:
                element: T = next(parent)
                return element
            except StopIteration:
                raise
            except Exception as error:
                failure = error
            cancellation.check()
            replacement = self._find_replacement(failure)
            if self._error_counter is not None:
                _forget_frames(failure)  # They refer to this iterator.
            del failure
            if replacement:
                return replacement[0]

    def _find_replacement(self, error: Exception) -> Sequence[T]:
        """Return a list of the element that replaces a failed one, or an empty list.

        Raises:
            Exception: `error`, if it was not raised for a single record.
            TooManyErrors: More than `max_errors` records have failed.
        """
        counter, errors = self._error_counter, self._errors
        if counter is None:
            return self._skip_or_substitute(error)
        errors.begin()
        try:
            elements = self._skip_or_substitute(error)
            summary = errors.summary
            assert summary is not None
            try:
                counter.account(summary, None)
            except TooManyErrors as too_many:
                # It takes the place of the element, so the record counts now.
                counter.account(summary, too_many)
                counter.restore_count(counter.count)
                raise
        finally:
            errors.begin()  # The traceback of an exception refers to this iterator.
        return elements

    def _go_to(self, state: Any) -> None:
        if self._error_counter is not None:
            self._error_counter.restore_count(0)
        super()._go_to(state)

    def _skip_or_substitute(self, error: Exception) -> Sequence[T]:
        """Record a failed element; return its substitute in a list, or none."""
        location = location_of(error)
        key = None if location is None else location.key
        if not self._substitutes:
            return self._errors.replace_record(error, key)
        (feed,) = index_iterators_of(self._parent)
        dataset = feed.dataset
        # The failed element is the one before `position`.
        substitutes = (
            _Substitute(index, record_of(dataset, index))
            for index in substitute_candidates(feed.position - 1, len(dataset))
        )
        return self._errors.replace_record(
            error, key, substitutes, self._read_substitute
        )

    def _read_substitute(self, substitute: Any) -> Sequence[T]:
        """Return the element of a `_Substitute`, in a list; stay at the position."""
        index = substitute.index
        parent = self._parent
        position = copy_state(parent.get_state())
        try:
            set_next_index(parent, index)
            element = next(parent)
            if get_next_index(parent) != index + 1:  # It was absent, and was skipped.
                raise LookupError(f"there is no element at index {index}")
        except StopIteration as end:
            raise LookupError(f"there is no element at index {index}") from end
        finally:
            parent.set_state(position)
        return [element]


class _Substitute(int):
    """The key of a record, and the index of its element in the dataset.

    It is an int, because `RecordErrors` reports it as the key of the substitute.
    """

    index: int

    def __new__(cls, index: int, key: int | None) -> Self:
        self = super().__new__(cls, index if key is None else key)
        self.index = index
        return self


def _forget_frames(error: BaseException | None) -> None:
    """Remove the tracebacks of an exception and of those that it came from."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def check_part(dataset: Any, leaves_out_errors: bool) -> None:
    """Raise ValueError if `on_error` does not support a part of an interleaving.

    Args:
        dataset: The part.
        leaves_out_errors: Whether `on_error` comes after the interleaving.

    Raises:
        ValueError: The part has an `on_error` of its own, or has batches though errors
            are left out after it.
    """
    for node in chain_of(dataset):
        if isinstance(node, OnErrorIterDataset):
            raise ValueError(
                "on_error was called for a part of an interleaving, whose errors would"
                " not be counted together. Call it after InterleaveIterDataset or"
                " multithread_prefetch."
            )
        if leaves_out_errors:
            _check_single(node)


def _check_single(node: Any) -> None:
    """Raise ValueError if a node's elements are not single records."""
    if node._KIND in ("batch", "transport"):
        method = "batch" if node._KIND == "batch" else "mp_prefetch"
        raise ValueError(
            f"on_error must come before {node_line(node)}, whose elements are not"
            f" single records. Call on_error before `{method}`."
        )


def _datasets_of(node: Any) -> Sequence[Any]:
    datasets = getattr(node, "datasets", ())
    return datasets if isinstance(datasets, (list, tuple)) else ()


def _check_indices(parent: Any) -> None:
    """Raise ValueError if elements of a chain do not each have one index."""
    node = parent
    while type(node) is not PrefetchIterDataset:
        if node._elements_per_output != 1 or not is_ours(node):
            raise ValueError(
                "on_error('substitute') needs elements that have an index, and those"
                f" of {node_line(node)} do not. Call it right after to_iter_dataset and"
                " its maps, or pass 'skip'."
            )
        node = node._parent


def policy_of(dataset: Any) -> ErrorPolicy | None:
    """Return the error policy of a chain; None if it does not have one.

    Raises:
        ValueError: Parts of the chain have one each.
    """
    nodes = [node for node in chain_of(dataset) if isinstance(node, OnErrorIterDataset)]
    if len(nodes) > 1:
        raise ValueError(
            f"on_error was called for {len(nodes)} parts of a chain that runs in"
            " workers, whose errors would not be counted together. Call it once, after"
            " the parts are mixed."
        )
    return nodes[0].policy if nodes else None


def on_error_iterators(iterator: Any) -> Iterator[OnErrorDatasetIterator[Any]]:
    """Yield the iterators of a chain that leave out elements."""
    if isinstance(iterator, OnErrorDatasetIterator):
        yield iterator
    for parent in getattr(iterator, "_parents", ()):
        yield from on_error_iterators(parent)
