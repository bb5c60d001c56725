"""Counts what an iterator has delivered; `parallel/consumed.py` does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gristmill._dataset.model import observer
from gristmill._dataset.model.node import build

if TYPE_CHECKING:
    from gristmill._base.source_counts import SourceCount


class Accountable:
    """An iterator whose outputs can be counted by source."""

    # Counts from the last call of `consumed` on; None before the first one.
    _consumed_counter: Any = None

    def consumed(
        self, lengths: Mapping[str, Any] | None = None
    ) -> dict[str, SourceCount]:
        """Count what was delivered so far, by source.

        The numbers follow from the state, see `IterDataset.consumed`.  They are those
        of this iterator alone: add up the elements, tokens and epochs of all ranks.
        A call counts what was delivered since the last one.

        Args:
            lengths: See `IterDataset.consumed`.  Pass the same object in each call.

        Returns:
            A `SourceCount` with ``elements``, ``tokens`` and ``epochs`` for the name
            of each source.  Metrics and ``gristmill top`` show the last result.

        Raises:
            ValueError: This iterator is part of another iterator's chain, or `lengths`
                does not fit the sources.
            TypeError: The records of a part of the chain are not known.

        Example:
            >>> parts = {"a": gristmill.MapDataset.range(6), "b": [10, 20, 30, 40]}
            >>> parts["b"] = gristmill.MapDataset.source(parts["b"])
            >>> ds = gristmill.MapDataset.mix(parts, {"a": 2, "b": 1}).batch(3)
            >>> iterator = iter(ds)
            >>> batch = next(iterator)
            >>> counts = iterator.consumed(lengths={"b": [5, 1, 7, 2]})
            >>> for name, count in counts.items():
            ...     print(name, count)
            a 2 elements, 0.33 epochs
            b 1 elements, 5 tokens, 0.25 epochs
        """
        return observer.get_observer().consumed_of(self, lengths)

    def _new_counter(self, lengths: Mapping[str, Any] | None) -> Any:
        """Return the counter of `consumed`."""
        iterator: Any = self
        if iterator._watch is None:
            raise ValueError(
                f"{self} is part of another iterator's chain. Call consumed() of the"
                " iterator that iter(dataset) returned."
            )
        return build("consumed_counter", iterator._watch.dataset, lengths)
