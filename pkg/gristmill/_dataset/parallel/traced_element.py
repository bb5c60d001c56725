"""An element with the ids of the records that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# For each record: the number of its source in the chain, its key in the source, its
# epoch, and the tokens [begin, end) of it that the output has.
Ids = npt.NDArray[np.void]
IDS_DTYPE = np.dtype(
    [(name, np.int64) for name in ("source", "key", "epoch", "begin", "end")]
)
# The end of a record of unknown length.
UNKNOWN_END = -1


class TracedElement:
    """An element with the ids of its records.

    Attributes:
        element: The element.
        rows: The ids of each of its rows; a single element has one row.
    """

    __slots__ = ("element", "rows")

    def __init__(self, element: Any, rows: Sequence[Ids]) -> None:
        self.element = element
        self.rows = rows

    @property
    def ids(self) -> Ids:
        """The ids of all records, of shape (n,) and dtype `IDS_DTYPE`."""
        return ids_of(self)

    def set_length(self, tokens: int) -> None:
        """Set the number of tokens of the element's only record, if it is unknown."""
        if len(self.rows) == 1 and self.rows[0]["end"].tolist() == [UNKNOWN_END]:
            self.rows = [with_span(self.rows[0], 0, tokens)]


def ids_of(*elements: TracedElement | None) -> Ids:
    """Return the ids of all records of some elements; None for an absent one."""
    rows = [row for each in elements if each is not None for row in each.rows]
    return np.concatenate([np.empty(0, IDS_DTYPE), *rows])


def with_span(ids: Ids, begin: int, end: int) -> Ids:
    """Return ids of a part of their records, tokens [begin, end)."""
    result = ids.copy()
    result["begin"], result["end"] = begin, end
    return result
