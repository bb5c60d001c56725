"""Counts what the iterator of a chain has delivered, by source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill._base.source_counts import SourceCount
from gristmill._dataset.model.node import builds
from gristmill._dataset.parallel.index_counts import TooManyIndices
from gristmill._dataset.parallel.single_thread import check_state_of
from gristmill._dataset.parallel.source_list import SourceList
from gristmill._dataset.parallel.state_counts import ReadingNeeded, StateCounter

# The most indices that are mapped to records for a report.
MAX_REPORTED_INDICES = 1 << 22


class ConsumedCounter:
    """Counts by source; it counts only what was delivered since its last count.

    Args:
        dataset: The last dataset of the chain.
        lengths: The number of tokens of each record, by the name of the source.

    Raises:
        TypeError: The records of a part of the chain have no known source.
        ValueError: `lengths` does not fit the sources.
    """

    def __init__(self, dataset: Any, lengths: Mapping[str, Any] | None = None) -> None:
        self._dataset = dataset
        self._sources = SourceList(dataset, lengths)
        self._counter = StateCounter(self._sources)

    def count(self, state: Any) -> dict[str, SourceCount]:
        """Return what was delivered before a state, by the name of the source."""
        return self._sources.counts_of(self._counter.count(self._dataset, state))

    def count_fast(self, state: Any) -> dict[str, SourceCount]:
        """Return the counts, or an empty dict if counting would take long."""
        try:
            tally = self._counter.count(
                self._dataset, state, may_read=False, max_indices=MAX_REPORTED_INDICES
            )
        except (ReadingNeeded, TooManyIndices):
            return {}
        return self._sources.counts_of(tally)


@builds("IterDataset.consumed")
def consumed(
    dataset: Any, state: Any, lengths: Mapping[str, Any] | None = None
) -> dict[str, SourceCount]:
    """See `IterDataset.consumed`."""
    counter = ConsumedCounter(dataset, lengths)
    check_state_of(dataset, state)
    return counter.count(state)


@builds("consumed_counter")
def consumed_counter(
    dataset: Any, lengths: Mapping[str, Any] | None = None
) -> ConsumedCounter:
    """Return the counter that an iterator keeps."""
    return ConsumedCounter(dataset, lengths)
