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
from gristmill._engine.stream import Output, Position

# The time from the start of a unit to the first check, and between checks: this share
# of the unit's time so far, within these limits.
MIN_INTERVAL_S = 5e-3
MAX_INTERVAL_S = 20e-3
INTERVAL_SHARE = 0.05


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

    The worker's main thread calls the public methods.  The thread of `_core.Watch`
    calls `_hand_over`.

    Args:
        worker_end: The worker's end of the shared memory.
        write: Writes the first of some outputs, at least one, to the slot of a unit.
            Returns the number of outputs written and of bytes used, or None if the unit
            is lost.  Raises an error if an output cannot be written.
    """

    def __init__(
        self,
        worker_end: _core.WorkerEnd,
        write: Callable[[_core.Work, list[Output]], tuple[int, int] | None],
    ) -> None:
        self._worker_end = worker_end
        self._write = write
        self._watch = _core.Watch(self._hand_over)
        # Guards the attributes below.  Only the main thread sets `_result`, so it reads
        # that one without the lock.
        self._lock = threading.Lock()
        # None while nothing is computed, and when the unit is lost.
        self._unit: _core.Work | None = None
        self._result: Outputs | None = None
        # The stream, if it computes several outputs in one call, and the number of
        # outputs of the current call that were offered.
        self._run_stream: Any = None
        self._offered_of_run = 0
        # The outputs that were offered to the parent, until it has answered.
        self._offered: list[Output] = []

    def begin(self, unit: _core.Work, result: Outputs, run_stream: Any) -> None:
        """Begin a unit: outputs will be added to `result`.

        Args:
            unit: The unit.
            result: Outputs are removed from here when they are handed over.
            run_stream: The stream, if it computes several outputs in one call, else
                None.  Its ``outputs_so_far()`` returns those that are finished.
        """
        with self._lock:
            self._unit, self._result, self._run_stream = unit, result, run_stream
            self._offered_of_run, self._offered = 0, []
        self._watch.begin(MIN_INTERVAL_S)

    def add_run(self, outputs: list[Output]) -> None:
        """Add all outputs of a call that computes several, after it has returned."""
        assert self._result is not None
        with self._lock:
            self._result.outputs += outputs[self._offered_of_run :]
            self._offered_of_run = 0

    def finish(self, unit: _core.Work) -> _core.Work | None:
        """Finish a unit, if it was begun; return the remaining unit.

        That begins after the outputs that were handed over.  Returns None if the unit
        is lost.
        """
        if self._result is None:
            return unit
        self._watch.end()
        with self._lock:
            if self._offered:
                self._take_answer(self._result)
            remaining_unit = self._unit
            self._unit = self._result = self._run_stream = None
        return remaining_unit

    def _hand_over(self, elapsed_s: float) -> float | None:
        """Offer the finished outputs; called `elapsed_s` after `begin`.

        Returns the time until the next call, in s; None for no further call.
        """
        interval_s = max(
            MIN_INTERVAL_S, min(INTERVAL_SHARE * elapsed_s, MAX_INTERVAL_S)
        )
        with self._lock:
            if self._result is None:
                return None
            if self._offered:
                if not self._worker_end.can_resume():
                    return interval_s
                if not self._take_answer(self._result):
                    return None
            if self._unit is None:
                return None
            if self._worker_end.is_awaited() and not self._offer(
                self._unit, self._result
            ):
                return None
        return interval_s

    def _offer(self, unit: _core.Work, result: Outputs) -> bool:
        """Offer the finished outputs, if any; return whether that succeeded.

        After False, there are no further offers of this unit.
        """
        # `finished` has these outputs first, and then those of the current call.
        earlier_count = len(result.outputs)
        finished = result.outputs[:]
        if self._run_stream is not None:
            finished += self._run_stream.outputs_so_far()[self._offered_of_run :]
        # A call may compute outputs of the next unit, too.
        unit_end = unit.first + unit.count
        while finished and _position_after(finished)[0] > unit_end:
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
        # `_write` may have dropped the last ones, so that the part is not too large.
        count, nbytes = written
        finished = finished[:count]
        if not self._worker_end.offer_part(count, nbytes, _position_after(finished)):
            return False
        self._offered = finished
        self._offered_of_run += max(len(finished) - earlier_count, 0)
        del result.outputs[: len(finished)]
        return True

    def _take_answer(self, result: Outputs) -> bool:
        """Wait for the answer to an offer; return whether the parent took it.

        If the parent declined, the offered outputs go back to `result`, and there are
        no further offers of this unit.
        """
        offered, self._offered = self._offered, []
        offered_unit, self._unit = self._unit, self._worker_end.resume()
        if offered_unit is None or self._unit is None:
            return False
        if self._unit.first == offered_unit.first:
            result.outputs[:0] = offered
            return False
        result.delivered_count += len(offered)
        return True


def _position_after(outputs: list[Output]) -> Position:
    """Return the stream's position after some outputs, at least one."""
    _, _, position = outputs[-1]
    return position
