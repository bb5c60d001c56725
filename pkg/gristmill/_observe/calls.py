"""How long calls of ``next`` took, and what their consumer did in between."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill import monitoring
from gristmill._base.sizes import size_of

AT_ONCE = 128
KEPT_DURATIONS = 8192


class Calls:
    """What is known of the calls of one iterator that were timed.

    Args:
        record: Is told how long each took, in ns, while metrics are recorded.

    Attributes:
        times: Beginnings and ends of calls that are not yet counted, in ns.
        enough: So many of these are worth counting.
        outputs: Calls that gave an element.
        next_ns: How long they took.
        gaps: How often it is known what was between two of them.
        gap_ns: How long those took: the consumer's time.
        sized: Elements of which the size was taken.
        bytes: Their size.
        durations_ns: How long the last calls took.
    """

    def __init__(self, record: Callable[[list[int]], None]) -> None:
        self._record = record
        self.times: list[int] = []
        self.enough = 2 if monitoring.is_on() else 2 * AT_ONCE
        self.outputs = self.next_ns = self.gaps = self.gap_ns = 0
        self.sized = self.bytes = 0
        self.durations_ns: collections.deque[int] = collections.deque(
            maxlen=KEPT_DURATIONS
        )
        # When the last call ended; 0: the next one does not follow on one that counts.
        self._ended_ns = 0

    @property
    def consumer_s(self) -> float:
        """How long the consumer was away; as long after each call as is known."""
        return self.gap_ns / max(self.gaps, 1) * self.outputs / 1e9

    def pause(self) -> None:
        """Leave out what is between the last call and the next one."""
        self._ended_ns = 0

    def count(self) -> None:
        """Take the calls in `times` into account."""
        times, self.times = self.times, []
        whole = len(times) // 2 * 2
        if not whole:
            return
        began, ended = np.array(times[:whole], np.int64).reshape(-1, 2).T
        if not self._ended_ns:
            self._ended_ns = int(began[0])
            self.gaps -= 1
        took = (ended - began).tolist()
        self.outputs += len(took)
        self.next_ns += sum(took)
        self.gaps += len(took)
        self.gap_ns += int(ended[-1]) - self._ended_ns - sum(took)
        self._ended_ns = int(ended[-1])
        self.durations_ns.extend(took)
        if monitoring.is_on():
            self._record(took)

    def take_size(self, element: Any) -> None:
        """Take the size of the last element into account."""
        self.sized += 1
        self.bytes += size_of(element)
        self._ended_ns = time.perf_counter_ns()
