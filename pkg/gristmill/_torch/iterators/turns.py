"""Chooses the worker that computes each batch."""

from __future__ import annotations

import itertools


class WorkerTurns:
    """Assigns requests to the workers of an epoch in turn.

    Args:
        workers: The number of workers.
        first_worker: The worker that computes the first batch.
        window: The number of requests that may be unanswered in all, if batches are
            delivered out of order.  A worker with its share of them misses its turn.
            0 if batches are delivered in order: no worker that is active misses a turn.

    Attributes:
        unanswered: The number of unanswered requests of each worker, which the iterator
            counts.
    """

    def __init__(self, workers: int, first_worker: int = 0, window: int = 0) -> None:
        self.unanswered = [0] * workers
        self._active = [True] * workers
        self._window = window
        turns = itertools.cycle(range(workers))
        self._turns = itertools.islice(turns, first_worker, None)

    def next_worker(self) -> int | None:
        """Return the worker whose turn it is, None if no worker takes a request."""
        for _ in self._active:
            worker = next(self._turns)
            if self._active[worker] and (not self._window or self._has_room(worker)):
                return worker
        return None

    def end(self, worker: int) -> None:
        """Stop assigning requests to a worker whose dataset is exhausted."""
        self._active[worker] = False

    def _has_room(self, worker: int) -> bool:
        # Rounded up, so that the active workers together have room for the window.
        # Otherwise a batch of indices that was drawn would be lost.
        return self.unanswered[worker] < -(-self._window // sum(self._active))
