"""The number of requests to a host that may be in flight at once.

The limit starts at 16 requests. It grows by half as long as each step increases the
bytes per second by at least a twentieth. If a step does not, the limit returns to its
previous value, and grows again after 4 rounds, because stores change and one round may
be an outlier. In each round the first `limit` answers are ignored, because a new limit
is only taking effect, and the next 2 * `limit` answers are measured. A round counts
only if requests waited for their turn all the time. Otherwise the limit does not decide
the speed.

A network or server error halves the limit, once for all requests that were in flight at
the time. After that the limit is at most 7/8 of its old value. This bound rises by an
eighth every 16 rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["RequestLimit"]

START_LIMIT = 16
GROWTH = 1.5
MIN_GAIN = 1.05
PAUSE_ROUNDS = 4
PAUSE_ROUNDS_AFTER_FAILURE = 16
BOUND_AFTER_FAILURE, BOUND_GROWTH = 7 / 8, 9 / 8


class RequestLimit:
    """Limits the requests in flight. The owner's lock must be held for each call.

    Args:
        max_limit: The upper bound of the limit, at least 1.
        clock: Returns the time in seconds.

    Attributes:
        limit: How many requests may be in flight.
        in_flight: How many requests are in flight.
    """

    def __init__(
        self, max_limit: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.limit = min(START_LIMIT, max_limit)
        self.in_flight = 0
        self._max_limit = max_limit
        self._clock = clock
        # The current upper bound; below `max_limit` for a while after a failure.
        self._bound = max_limit
        # The limit to return to, and its bytes per second, or 0 if not measured.
        self._best_limit, self._best_rate = self.limit, 0.0
        self._pause_rounds_left = 0
        self._failures = 0
        self._begin_round()

    def begin(self) -> int:
        """Count a request that starts, and return the value to pass to `end`.

        It is the number of failures counted until now.  If a request began before the
        last of them, its own failure is not counted.
        """
        self.in_flight += 1
        return self._failures

    def end(self, ticket: int, nbytes: int, *, failed: bool, has_waiting: bool) -> None:
        """Count an answer.

        Args:
            ticket: The value that `begin` returned.
            nbytes: The size of the answer.
            failed: Whether the network or the server failed.
            has_waiting: Whether a request is waiting for its turn.
        """
        self.in_flight -= 1
        if failed:
            if ticket == self._failures:
                self._lower_limit()
        elif not has_waiting:
            self._begin_round()
        else:
            self._count(nbytes)

    def _begin_round(self) -> None:
        self._answers = self._bytes = 0

    def _count(self, nbytes: int) -> None:
        self._answers += 1
        if self._answers <= self.limit:  # A new limit is taking effect.
            self._round_start = self._clock()
            return
        self._bytes += nbytes
        if self._answers < 3 * self.limit:
            return
        elapsed_s = max(self._clock() - self._round_start, 1e-9)
        self._adjust(self._bytes / elapsed_s)
        self._begin_round()

    def _adjust(self, rate: float) -> None:
        """Choose the next limit from the bytes per second of this one."""
        if self._pause_rounds_left:
            self._pause_rounds_left -= 1
            self._best_rate = rate
            if self._pause_rounds_left:
                return
            # The pause is over, so the bound may rise.
            self._bound = min(self._max_limit, int(self._bound * BOUND_GROWTH) + 1)
        elif rate <= self._best_rate * MIN_GAIN:
            self.limit = self._best_limit
            self._pause_rounds_left = self._pause_rounds()
            return
        self._best_limit, self._best_rate = self.limit, rate
        self.limit = min(int(self.limit * GROWTH) + 1, self._bound)
        if self.limit == self._best_limit:  # The bound is reached.
            self._pause_rounds_left = self._pause_rounds()

    def _pause_rounds(self) -> int:
        """Return the number of rounds before the limit may grow again."""
        return (
            PAUSE_ROUNDS
            if self._bound == self._max_limit
            else PAUSE_ROUNDS_AFTER_FAILURE
        )

    def _lower_limit(self) -> None:
        self._failures += 1
        self._bound = max(1, int(self.limit * BOUND_AFTER_FAILURE))
        self.limit = self._best_limit = max(1, self.limit // 2)
        self._best_rate, self._pause_rounds_left = 0.0, 0
        self._begin_round()
