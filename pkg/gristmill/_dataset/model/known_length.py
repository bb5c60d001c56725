"""Computes the length of an `IterDataset`, if its chain determines it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

# An endless `MapDataset` has length `sys.maxsize`, and batches of it are shorter.
ENDLESS = 1 << 45


class HasLength:
    """A dataset that has a length if all nodes of its chain have one."""

    # Whether a node has the same number of elements as its only parent.
    _KEEPS_LENGTH: ClassVar[bool] = False
    _parents: Any

    def __len__(self) -> int:
        """Return the number of elements of a new iterator, without creating one.

        The iterator over a `MapDataset` skips elements that are None. If a user's
        function returns None, the element is counted here, because the function is not
        called.

        Raises:
            TypeError: The number is not known before iterating, or is infinite.

        Example:
            >>> len(gristmill.MapDataset.range(10).to_iter_dataset().batch(4))
            3
        """
        try:
            count = self._count_elements()
        except UnknownLength as reason:
            raise self._has_no_len(str(reason)) from None
        except Exception as error:  # A user's source may raise anything.
            raise self._has_no_len(f"{type(error).__name__}: {error}") from error
        if count >= ENDLESS:
            raise self._has_no_len("it is infinite.")
        return int(count)

    def __bool__(self) -> bool:
        # As in Grain, where no IterDataset has a length.
        return True

    def _count_elements(self) -> float:
        """Return the number of elements, or math.inf.

        Raises:
            UnknownLength: The number is not known before iterating.
        """
        if not self._KEEPS_LENGTH:
            raise UnknownLength(
                f"the number of elements of {type(self).__name__} is not known before"
                " iterating."
            )
        (parent,) = self._parents
        return count_of(parent)

    def _has_no_len(self, reason: str) -> TypeError:
        return TypeError(
            f"object of type {type(self).__name__!r} has no len(): {reason}"
        )


class UnknownLength(Exception):
    """The number of elements is not known; the message names the node."""


def count_of(dataset: Any) -> float:
    """Return the number of elements of a dataset of either kind, or math.inf.

    Raises:
        UnknownLength: The number is not known before iterating.
    """
    if isinstance(dataset, HasLength):
        own_len = type(dataset).__len__ is not HasLength.__len__
        return len(dataset) if own_len else dataset._count_elements()
    length = len(dataset)
    return math.inf if length >= ENDLESS else length
