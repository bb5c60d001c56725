"""How many requests may be under way to a host at once: as many as it makes use of.

The limit begins at 16 requests and grows by a half as long as that makes the bytes of a
second more by a twentieth.  Where it does not, the limit goes back, and tries again
after 4 rounds, because stores change and a round may be a bad one.  A round is as many
answers as come while each request of the limit is answered twice, after one in which a
new limit takes effect; it counts only if requests waited for their turn all the time,
for otherwise it is not the limit that decides.

A request that fails by the network or the server halves the limit, once for all that
were under way by then, and the limit stays below 7/8 of what it was; that bound grows
by an eighth every 16 rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Flow"]

START = 16
GROWTH = 1.5
GAIN = 1.05
REST_ROUNDS = 4
ROUNDS_AFTER_FAILURE = 16
BELOW_FAILURE, RISE = 7 / 8, 9 / 8


class Flow:
    """Limits the requests under way.  One thread at a time calls.

    Args:
        most: The limit's own limit, at least 1.
        clock: The time in seconds.

    Attributes:
        limit: How many requests may be under way.
        under_way: How many are.
    """

    def __init__(
        self, most: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.limit = min(START, most)
        self.under_way = 0
        self._most = most
        self._clock = clock
        # What a failure leaves of `most` for a while.
        self._top = most
        # Where to go back to, and what came in a second there; 0 for not known.
        self._steady, self._rate = self.limit, 0.0
        self._rest = 0
        self._failures = 0
        self._begin_round()

    def begin(self) -> int:
        """Count a request that begins; returns what `end` wants to know of it."""
        self.under_way += 1
        return self._failures

    def end(self, begun: int, nbytes: int, *, failed: bool, waiting: bool) -> None:
        """Count an answer.

        Args:
            begun: What `begin` returned.
            nbytes: What came.
            failed: Whether the network or the server failed.
            waiting: Whether a request waits for its turn.
        """
        self.under_way -= 1
        if failed:
            if begun == self._failures:
                self._fall()
        elif not waiting:
            self._begin_round()
        else:
            self._count(nbytes)

    def _begin_round(self) -> None:
        self._answers = self._bytes = 0

    def _count(self, nbytes: int) -> None:
        self._answers += 1
        if self._answers <= self.limit:  # A new limit takes effect.
            self._since = self._clock()
            return
        self._bytes += nbytes
        if self._answers < 3 * self.limit:
            return
        elapsed = max(self._clock() - self._since, 1e-9)
        self._decide(self._bytes / elapsed)
        self._begin_round()

    def _decide(self, rate: float) -> None:
        """Choose the next limit, by what came in a second with this one."""
        if self._rest:
            self._rest -= 1
            self._rate = rate
            if self._rest:
                return
            self._top = min(self._most, int(self._top * RISE) + 1)
        elif rate <= self._rate * GAIN:
            self.limit = self._steady
            self._rest = self._pause()
            return
        self._steady, self._rate = self.limit, rate
        self.limit = min(int(self.limit * GROWTH) + 1, self._top)
        if self.limit == self._steady:
            self._rest = self._pause()

    def _pause(self) -> int:
        """How many rounds pass before the limit may grow again."""
        return REST_ROUNDS if self._top == self._most else ROUNDS_AFTER_FAILURE

    def _fall(self) -> None:
        self._failures += 1
        self._top = max(1, int(self.limit * BELOW_FAILURE))
        self.limit = self._steady = max(1, self.limit // 2)
        self._rate, self._rest = 0.0, 0
        self._begin_round()
