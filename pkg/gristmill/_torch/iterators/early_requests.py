"""Requests for batches of the next epoch, see ``overlap_epochs``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gristmill._torch.indices.draws import as_list, preview_epoch


class EarlyRequests:
    """The requests for the next epoch's batches that are sent before it begins.

    Attributes:
        sent_keys: The batches of indices that were requested from workers; the iterator
            adds them.
    """

    def __init__(self, index_sampler: Any) -> None:
        self._index_sampler = index_sampler
        self._predicted_keys: Iterator[Any] | None = None
        self.sent_keys: list[Any] = []

    def next_keys(self) -> Any:
        """Return the next batch of indices, None if it cannot be predicted.

        Call it at the end of the epoch, after its last random draw.
        """
        if self._predicted_keys is None:
            self._predicted_keys = preview_epoch(self._index_sampler)
        return next(self._predicted_keys, None)

    def matches(self, drawn_keys: list[Any]) -> bool:
        """Return whether the epoch's first batches are those that were predicted."""
        return [*map(as_list, drawn_keys)] == [*map(as_list, self.sent_keys)]
