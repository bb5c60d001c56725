"""Counts what iterators have delivered, for their users, reports and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill._base.source_counts import SourceCount
from gristmill._dataset.model.node import build


def consumed_of(
    iterator: Any, lengths: Mapping[str, Any] | None
) -> dict[str, SourceCount]:
    """Return what an iterator has delivered; see `DatasetIterator.consumed`."""
    watch = iterator._watch
    if watch is None:
        raise ValueError(
            f"{iterator} is part of another iterator's chain. Call consumed() of the"
            " iterator that iter(dataset) returned."
        )
    kept = iterator._consumed_counter
    if kept is None or kept[0] is not lengths:
        kept = (
            lengths,
            build("DatasetIterator.consumed_counter", watch.dataset, lengths),
        )
        iterator._consumed_counter = kept
    counts: dict[str, SourceCount] = kept[1].count(iterator.get_state())
    return counts
