"""An element, and the ids of the records that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Of each record: the number of its source in the chain, and its key in the source.
Ids = npt.NDArray[np.void]
IDS_DTYPE = np.dtype([("source", np.int64), ("key", np.int64)])
# Of each part of a record that a packed row has, also the first cell, and the one after
# the last; the latter is -1 for a whole record that is not in such a row.
SPAN_IDS_DTYPE = np.dtype([*IDS_DTYPE.descr, ("begin", np.int64), ("end", np.int64)])


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
        """The ids of all records, of shape (n,); see `ids_of`."""
        return ids_of(self)


def ids_of(*elements: TracedElement | None) -> Ids:
    """Return the ids of all records of some elements; None for an absent one.

    Their dtype is `SPAN_IDS_DTYPE` if any has it, else `IDS_DTYPE`.
    """
    rows = [row for each in elements if each is not None for row in each.rows]
    if any(row.dtype == SPAN_IDS_DTYPE for row in rows):
        return np.concatenate([with_span(row, 0, -1) for row in rows])
    return np.concatenate([np.empty(0, IDS_DTYPE), *rows])


def with_span(ids: Ids, begin: int, end: int) -> Ids:
    """Return ids of a part of their records, unless they have a part already."""
    if ids.dtype == SPAN_IDS_DTYPE:
        return ids
    result = np.empty(len(ids), SPAN_IDS_DTYPE)
    result["source"], result["key"] = ids["source"], ids["key"]
    result["begin"], result["end"] = begin, end
    return result
