"""How many elements an `IterDataset` gives, if that follows from its chain."""

from __future__ import annotations

import math
from typing import Any, ClassVar

# An endless `MapDataset` has the largest length there is, and its batches a part of it.
ENDLESS = 1 << 45


class Counted:
    """Has a length if each node of its chain says how many elements it gives."""

    # Whether a node with one parent gives as many elements as that.
    _KEEPS_COUNT: ClassVar[bool] = False
    _parents: Any

    def __len__(self) -> int:
        """Return how many elements a new iterator gives, without making one.

        An element that is None in a `MapDataset` is left out by its iterator. One that
        a function of yours makes None counts here, since it was not called yet.

        Raises:
            TypeError: The number is not known before iterating, or there is no end.

        Example:
            >>> len(gristmill.MapDataset.range(10).to_iter_dataset().batch(4))
            3
        """
        try:
            count = self._count_elements()
        except Unknown as reason:
            raise self._has_no_len(str(reason)) from None
        except Exception as error:  # A source of the user's may raise anything.
            raise self._has_no_len(f"{type(error).__name__}: {error}") from error
        if count >= ENDLESS:
            raise self._has_no_len("it has no end.")
        return int(count)

    def __bool__(self) -> bool:
        # As in Grain, where no IterDataset has a length.
        return True

    def _count_elements(self) -> float:
        """Return how many elements there are, math.inf without end.

        Raises:
            Unknown: That is not known before iterating.
        """
        if not self._KEEPS_COUNT:
            raise Unknown(
                f"how many elements {type(self).__name__} gives is not known before"
                " iterating."
            )
        (parent,) = self._parents
        return count_of(parent)

    def _has_no_len(self, reason: str) -> TypeError:
        return TypeError(
            f"object of type {type(self).__name__!r} has no len(): {reason}"
        )


class Unknown(Exception):
    """The number of elements is not known; the text says which node does not say it."""


def count_of(dataset: Any) -> float:
    """Return how many elements a dataset of either kind has, math.inf without end.

    Raises:
        Unknown: That is not known before iterating.
    """
    if isinstance(dataset, Counted):
        own_len = type(dataset).__len__ is not Counted.__len__
        return len(dataset) if own_len else dataset._count_elements()
    length = len(dataset)
    return math.inf if length >= ENDLESS else length
