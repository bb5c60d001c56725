"""Requests for batches of the next epoch, see ``overlap_epochs``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gristmill._torch.indices.draws import as_list, preview_epoch


class EarlyRequests:
    """The requests for the next epoch's batches that are sent before it begins.

    Attributes:
        sent: The batches of indices that workers were asked for.
    """

    def __init__(self, index_sampler: Any) -> None:
        self._index_sampler = index_sampler
        self._predicted: Iterator[Any] | None = None
        self.sent: list[Any] = []

    def next_keys(self) -> Any:
        """Return the next batch of indices, None if it cannot be predicted."""
        # Not before the end of the epoch, when its random draws are over.
        if self._predicted is None:
            self._predicted = preview_epoch(self._index_sampler)
        return next(self._predicted, None)

    def match(self, drawn: list[Any]) -> bool:
        """Return whether the epoch's first batches are those that were predicted."""
        return [*map(as_list, drawn)] == [*map(as_list, self.sent)]
