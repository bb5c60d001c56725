"""Hands over the finished outputs of a unit before the whole unit is finished.

A unit has several small outputs, so that the cost for each unit is small.  If one
output is slow, or never ends, the consumer should not wait for the outputs before it.
From time to time a thread of the core checks whether the consumer waits.  If so, it
hands over the outputs that are finished.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from gristmill import _core
from gristmill._engine.stream import Output

# Time that outputs wait for the others of their unit.  In a slow unit, it is a share of
# the unit's time.
HAND_OVER_S = 5e-3
LATER_SHARE = 0.05
LATER_MOST_S = 20e-3


class Outputs(Protocol):
    """Outputs of a unit.

    Attributes:
        outputs: The outputs that were not handed over, the oldest first.
        delivered_count: The number of outputs that were handed over before.
    """

    outputs: list[Output]
    delivered_count: int


class UnitParts:
    """The unit that a worker computes, while another thread hands over parts.

    Args:
        end: The worker's end of the shared memory.
        write: Writes the first of some outputs, at least one, to the slot of a unit.
            Returns the number of outputs written and of bytes used, or None if the unit
            is lost.  Raises an error if an output cannot be written.
    """

    def __init__(
        self,
        end: _core.WorkerEnd,
        write: Callable[[_core.Work, list[Output]], tuple[int, int] | None],
    ) -> None:
        self._end = end
        self._write = write
        self._watch = _core.Watch(self._hand_over)
        # Guards the attributes below.
        self._lock = threading.Lock()
        # None while nothing is computed, and when the unit is lost.
        self._unit: _core.Work | None = None
        self._result: Outputs | None = None
        # The object that computes several outputs in one call, and the number of
        # outputs of the current call that were offered.
        self._running: Any = None
        self._of_run = 0
        # The outputs that were offered to the parent, until it has answered.
        self._offered: list[Output] = []

    def begin(self, unit: _core.Work, result: Outputs, running: Any) -> None:
        """Begin a unit: outputs will be added to `result`.

        Args:
            unit: The unit.
            result: Outputs are removed from here when they are handed over.
            running: Has ``outputs_so_far()``, which returns the finished outputs of a
                call that computes several; None if there is no such call.
        """
        with self._lock:
            self._unit, self._result, self._running = unit, result, running
            self._of_run, self._offered = 0, []
        self._watch.begin(HAND_OVER_S)

    def add(self, outputs: list[Output]) -> None:
        """Add the outputs of a call that computes several, which has returned."""
        assert self._result is not None
        with self._lock:
            self._result.outputs += outputs[self._of_run :]
            self._of_run = 0

    def finish(self, unit: _core.Work) -> _core.Work | None:
        """Finish a unit, if it was begun; return the rest of it.

        The rest begins after the outputs that were handed over.  Returns None if the
        rest is not wanted.
        """
        if self._result is None:
            return unit
        self._watch.end()
        with self._lock:
            if self._offered:
                self._take_answer(self._result)
            now = self._unit
            self._unit = self._result = self._running = None
        return now

    def _hand_over(self, passed_s: float) -> float | None:
        """Offer the finished outputs; called in a thread, `passed_s` after `begin`.

        Returns the time until the next call, in s; None for no further call.
        """
        again_s = max(HAND_OVER_S, min(LATER_SHARE * passed_s, LATER_MOST_S))
        with self._lock:
            if self._result is None:
                return None
            if self._offered:
                if not self._end.can_resume():
                    return again_s
                if not self._take_answer(self._result):
                    return None
            if self._unit is None:
                return None
            if self._end.is_awaited() and not self._offer(self._unit, self._result):
                return None
        return again_s

    def _offer(self, unit: _core.Work, result: Outputs) -> bool:
        """Offer the finished outputs, if any; return whether that succeeded."""
        whole = len(result.outputs)
        finished = result.outputs[:]
        if self._running is not None:
            finished += self._running.outputs_so_far()[self._of_run :]
        # A call may compute outputs of the next unit, too.
        end = unit.first + unit.count
        while finished and finished[-1][2][0] > end:
            finished.pop()
        if not finished:
            return True
        try:
            written = self._write(unit, finished)
        except Exception:
            return False  # The error is raised in its turn.
        if written is None:
            self._unit = None
            return False
        finished = finished[: written[0]]
        if not self._end.offer_part(*written, finished[-1][2]):
            return False
        self._offered = finished
        self._of_run += max(len(finished) - whole, 0)
        del result.outputs[: len(finished)]
        return True

    def _take_answer(self, result: Outputs) -> bool:
        """Wait for the answer to an offer; return whether the parent took it."""
        offered, self._offered = self._offered, []
        before, self._unit = self._unit, self._end.resume()
        if before is None or self._unit is None:
            return False
        if self._unit.first == before.first:
            result.outputs[:0] = offered
            return False
        result.delivered_count += len(offered)
        return True
