"""Counts what iterators have delivered, for their users, reports and metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gristmill import monitoring
from gristmill._base.publication import publish
from gristmill._base.source_counts import SourceCount


def consumed_of(
    iterator: Any, lengths: Mapping[str, Any] | None
) -> dict[str, SourceCount]:
    """Return what an iterator of datasets or of a `DataLoader` has delivered."""
    counter = _counter_of(iterator, lengths)
    counts: dict[str, SourceCount] = counter.count(iterator.get_state())
    if monitoring.is_on():
        monitoring.record_consumed(counts)
    facts = {name: dataclasses.asdict(count) for name, count in counts.items()}
    publish("counts", iterator, facts)
    return counts


def count_for_report(iterator: Any) -> dict[str, SourceCount]:
    """Return the counts to show in a report; they are empty if counting is slow.

    The numbers of a single source without tokens are not shown.
    """
    try:
        kept = iterator._consumed_counter
        counter = _counter_of(iterator, kept[0] if kept else None)
        counts: dict[str, SourceCount] = counter.count_fast(iterator.get_state())
    except Exception:
        # It has no counter, a source or a state is not known, or a user's method
        # `lengths` is another one.
        return {}
    shows_all = len(counts) > 1
    return {
        name: count
        for name, count in counts.items()
        if shows_all or count.tokens is not None
    }


def _counter_of(iterator: Any, lengths: Mapping[str, Any] | None) -> Any:
    kept = iterator._consumed_counter
    if kept is None or kept[0] is not lengths:
        kept = iterator._consumed_counter = lengths, iterator._new_counter(lengths)
    return kept[1]
