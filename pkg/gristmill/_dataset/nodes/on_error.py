"""Leaves out elements that fail, or puts others in their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gristmill._base.types import T
from gristmill._dataset.model.counted import Unknown
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    NodeIterator,
    get_next_index,
    set_next_index,
)
from gristmill._dataset.model.names import line_of
from gristmill._dataset.model.node import ParentSpec, builds, chain_of
from gristmill._dataset.model.states import copied
from gristmill._dataset.nodes.to_iter import feeds_of
from gristmill._engine.record_errors import RecordErrors, Tally, stand_ins
from gristmill._hot import cancellation
from gristmill._hot.place import place_of
from gristmill.bad_records import BadRecords, ErrorPolicy, OnError
from gristmill.errors import TooManyErrors


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
                    "on_error was called twice for one chain. Leave out one of the"
                    " calls."
                )
            if node._KIND in ("batch", "transport"):
                method = "batch" if node._KIND == "batch" else "mp_prefetch"
                raise ValueError(
                    f"on_error must come before {line_of(node)}, whose elements are not"
                    f" single records. Call on_error before `{method}`."
                )

    @property
    def _substitutes(self) -> bool:
        return self.policy.on_error == "substitute"

    def __iter__(self) -> DatasetIterator[T]:
        return OnErrorDatasetIterator(self)

    def _arguments_text(self) -> str:
        return f"(on_error={self.policy.on_error!r})"

    def _count_elements(self) -> float:
        if self.policy.on_error == "skip":
            raise Unknown("on_error('skip') may leave elements out.")
        count: float = self._parent._count_elements()
        return count


class OnErrorDatasetIterator(NodeIterator[T]):
    """Iterates over the parent's elements without those that fail.

    The state is the parent's.

    Attributes:
        tally: Counts the bad records; None if a worker reports them to its parent.
    """

    _TAKES_IN_STEP = True

    def __init__(self, node: OnErrorIterDataset[T]) -> None:
        super().__init__(node)
        self._substitutes = node._substitutes
        self._length = 0
        if self._substitutes:
            self._length = self._check_indices()
        source = line_of([*chain_of(node)][-1])
        self.tally: Tally | None = Tally(node.policy, source)
        self._errors = RecordErrors(0, node.policy.on_error)

    @property
    def errors(self) -> BadRecords:  # type: ignore[override]
        return BadRecords(0, ()) if self.tally is None else self.tally.bad_records

    def report_to(self, errors: RecordErrors) -> None:
        """Collect bad records for the parent process, which counts them."""
        self._errors, self.tally = errors, None

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
            elements = self._in_place_of(failure)
            del failure  # Its traceback refers to this frame.
            if elements:
                return elements[0]

    def _in_place_of(self, error: Exception) -> Sequence[T]:
        """Return the element that takes the place of one that failed, if one does.

        Raises:
            Exception: `error`, if it was not raised for a single record.
            TooManyErrors: More records failed than may.
        """
        tally, errors = self.tally, self._errors
        if tally is None:
            return self._resolved(error)
        errors.begin()
        elements = self._resolved(error)
        passed = errors.passed
        assert passed is not None
        try:
            tally.account(passed, None)
        except TooManyErrors as too_many:
            # It takes the place of the element, so the record counts now.
            tally.account(passed, too_many)
            tally.restart(tally.count)
            raise
        return elements

    def _resolved(self, error: Exception) -> Sequence[T]:
        place = place_of(error)
        key = None if place is None else place.key
        if not self._substitutes:
            return self._errors.resolve(error, key)
        index = get_next_index(self._parent) - 1
        others = stand_ins(index, self._length)
        return self._errors.resolve(error, key, others, self._element_at)

    def _element_at(self, index: int) -> Sequence[T]:
        """Return the element at an index, in a list; stay at the position."""
        parent = self._parent
        here = copied(parent.get_state())
        try:
            set_next_index(parent, index)
            element = next(parent)
            if get_next_index(parent) != index + 1:
                raise LookupError(f"there is no element at index {index}")
        except StopIteration as end:
            raise LookupError(f"there is no element at index {index}") from end
        finally:
            parent.set_state(here)
        return [element]

    def _check_indices(self) -> int:
        """Return the number of indices of the chain.

        Raises:
            ValueError: An element does not have an index.
        """
        feeds = list(feeds_of(self._parent))
        try:
            get_next_index(self._parent)
            (feed,) = feeds
        except (NotImplementedError, ValueError):
            raise ValueError(
                f"on_error('substitute') needs elements that have an index, and those"
                f" of {self._parent} do not. Call it before steps that give more or"
                " fewer elements than they get, such as filter, or pass 'skip'."
            ) from None
        return len(feed.dataset)


def policy_of(dataset: Any) -> ErrorPolicy | None:
    """Return the error policy of a chain; None if it does not have one.

    Raises:
        ValueError: Parts of the chain have different ones.
    """
    policies = {
        node.policy
        for node in chain_of(dataset)
        if isinstance(node, OnErrorIterDataset)
    }
    if len(policies) > 1:
        raise ValueError(
            "Parts of a chain that runs in workers must have the same on_error,"
            f" max_errors and quarantine, got {sorted(map(str, policies))}."
        )
    return next(iter(policies), None)


def tolerant_of(iterator: Any) -> Iterator[OnErrorDatasetIterator[Any]]:
    """Yield the iterators of a chain that leave out elements."""
    if isinstance(iterator, OnErrorDatasetIterator):
        yield iterator
    for parent in getattr(iterator, "_parents", ()):
        yield from tolerant_of(parent)
