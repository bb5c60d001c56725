"""A dataset that ends early."""

from __future__ import annotations

from typing import Any

from gristmill._base.checks import whole_number
from gristmill._base.types import T
from gristmill._dataset.model import state_checks
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import DatasetIterator, set_next_index
from gristmill._dataset.model.spec import ParentSpec


class LimitIterDataset(ParentSpec, IterDataset[T]):
    """The first elements of a dataset.

    Args:
        parent: The dataset.
        count: How many elements, at least 1; all where the parent has fewer.

    Raises:
        ValueError: The count is not positive.

    Example:
        >>> ds = gristmill.MapDataset.range(5).to_iter_dataset()
        >>> list(gristmill.experimental.LimitIterDataset(ds, count=2))
        [0, 1]
    """

    _KIND = "order"

    def __init__(self, parent: IterDataset[T], count: int) -> None:
        count = whole_number("count", count)
        if count <= 0:
            raise ValueError(f"Count must be a positive integer. Got {count}.")
        super().__init__(parent)
        self._count = count

    def __iter__(self) -> DatasetIterator[T]:
        return LimitDatasetIterator(iter(self._parent), self._count)

    def __str__(self) -> str:
        return f"LimitIterDataset(count={self._count})"


class LimitDatasetIterator(DatasetIterator[T]):
    """Iterates over the first elements.

    Args:
        parent: Gives the elements.
        count: How many are given out.
    """

    _MUTATES_ELEMENT_SPEC = False
    _TAKES_IN_STEP = True

    def __init__(self, parent: DatasetIterator[T], count: int) -> None:
        super().__init__(parent)
        self._count = count
        self._read = 0

    def __next__(self) -> T:
        if self._read >= self._count:
            raise StopIteration
        element: T = next(self._parents[0])
        self._read += 1
        return element

    def get_state(self) -> Any:
        """The parent's position, and the elements given out."""
        return {
            "parent": self._parent.get_state(),
            "count_elements_read": self._read,
        }

    @state_checks.checked(
        state_checks.fields(
            parent=state_checks.parent, count_elements_read=state_checks.count
        )
    )
    def set_state(self, state: Any) -> None:
        """Continue at a position."""
        self._parent.set_state(state["parent"])
        self._read = state["count_elements_read"]

    def _get_next_index(self) -> int:
        return self._read

    def _set_next_index(self, index: int) -> None:
        set_next_index(self._parent, index)
        self._read = index
