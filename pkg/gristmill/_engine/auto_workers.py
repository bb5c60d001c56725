"""Decides how many workers an iterator needs, for ``worker_count="auto"``.

`WorkerPlan` depends on measurements alone, not on time.  `auto_run.py` measures, and
applies the decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

# If the consumer waits for a smaller share of its time, it has enough workers.
MAX_WAITED = 0.05
# If workers are idle for a larger share, they are not what the consumer waits for.
MAX_IDLE = 0.4
# The factor between the workers that a measurement needs and those that it gets.
HEADROOM = 1.15
# Factors of one change: no larger growth, and no smaller growth or reduction.
MAX_GROWTH, MIN_GROWTH, MIN_SHRINK = 4, 1.1, 0.7
# More workers must be faster by the first factor, and fewer ones by the second.
MIN_GAIN, MIN_KEPT = 1.05, 0.97
# Times of outputs that differ by a larger share belong to another workload.
MAX_DIFFERENCE = 0.5
# The time of a rest after which bounds are tried again.  It doubles each time.
FIRST_REST_S = 10.0
# More processes are not useful.
MAX_WORKERS = 256


class Measurement(NamedTuple):
    """The work and waits of an iterator's consumer and workers; times are in s.

    Attributes:
        workers: The number of workers.
        outputs: The number of outputs that the consumer took, at least 1.
        seconds: The time of the measurement.
        waited_s: The part of it in which the consumer waited.
        busy_s: The time in which workers had a unit, in all.
        runnable_s: The time in which workers computed, or waited for a core.
    """

    workers: int
    outputs: int
    seconds: float
    waited_s: float
    busy_s: float
    runnable_s: float

    @property
    def waited(self) -> float:
        """The share of the time in which the consumer waited."""
        return self.waited_s / self.seconds

    @property
    def idle(self) -> float:
        """The share of the time in which a worker had no unit."""
        return max(0.0, 1 - self.busy_s / (self.workers * self.seconds))

    @property
    def rate(self) -> float:
        """Outputs per second."""
        return self.outputs / self.seconds

    def differs(self, other: Measurement) -> bool:
        """Return whether workers, or the consumer, take another time for an output."""
        busy_s, other_busy_s = self.busy_s / self.outputs, other.busy_s / other.outputs
        used_s = (self.seconds - self.waited_s) / self.outputs
        other_used_s = (other.seconds - other.waited_s) / other.outputs
        used_scale_s = max(other_used_s, 1 / other.rate)
        return (
            abs(busy_s - other_busy_s) > MAX_DIFFERENCE * other_busy_s
            or abs(used_s - other_used_s) > MAX_DIFFERENCE * used_scale_s
        )


class Decision(NamedTuple):
    """A number of workers, and the reason for it or for the limit to it."""

    workers: int
    reason: str


def limit_by_cores(found: Measurement, cores: float) -> Decision:
    """Return the number of workers that keep all cores busy."""
    computing = found.runnable_s / found.busy_s if found.busy_s else 0.0
    workers = MIN_KEPT * cores / max(computing, 1e-6)
    reason = f"they compute {min(computing, 1):.0%} of the time on {cores:g} cores"
    return Decision(max(1, math.ceil(min(workers, MAX_WORKERS))), reason)


NO_LIMIT = Decision(MAX_WORKERS, f"{MAX_WORKERS} are the most")


class WorkerPlan:
    """Decides by one measurement after another.

    A change is a trial.  If it does not help in two measurements, the plan goes back
    and sets a bound.  At rest, too, two measurements in a row have to ask for a change.
    A bound holds until the workload changes, or for `FIRST_REST_S`, then for twice that
    time, and so on.
    """

    def __init__(self) -> None:
        self._least, self._most = Decision(1, ""), NO_LIMIT
        # The measurement before the change that is on trial.
        self._before: Measurement | None = None
        # The first measurement at rest; None while the plan looks for a number.
        self._rest: Measurement | None = None
        self._rested_s, self._max_rest_s = 0.0, FIRST_REST_S
        # The number of measurements in a row that asked to end the rest, or the trial.
        self._objections = 0

    def decide(self, found: Measurement, limits: Sequence[Decision]) -> Decision:
        """Return the number of workers after a measurement; `limits` are the most."""
        if (verdict := self._judge_trial(found)) is not None:
            return verdict
        wanted = self._wanted(found, limits)
        if self._rest is not None:
            self._rested_s += found.seconds
            is_other = found.differs(self._rest)
            is_content = not is_other and wanted.workers == found.workers
            self._objections = 0 if is_content else self._objections + 1
            is_over = is_content and self._rested_s >= self._max_rest_s
            if self._objections < 2 and not is_over:
                return wanted._replace(workers=found.workers)
            self._max_rest_s = FIRST_REST_S if is_other else 2 * self._max_rest_s
            self._least, self._most = Decision(1, ""), NO_LIMIT
            wanted = self._wanted(found, limits)
        self._rested_s, self._objections = 0.0, 0
        is_kept = wanted.workers == found.workers
        self._rest, self._before = (found, None) if is_kept else (None, found)
        return wanted

    def _judge_trial(self, found: Measurement) -> Decision | None:
        """Return the present number, or that before a trial, if it did not help."""
        before = self._before
        if before is None:
            return None
        if found.workers == before.workers or _helped(before, found):
            self._before, self._objections = None, 0
            return None
        tried = f"with {found.workers} the consumer waited {found.waited:.0%}"
        is_more = found.workers > before.workers
        reason = f"{tried}, and got {'no more' if is_more else 'fewer'} outputs"
        self._objections += 1
        if self._objections < 2:
            return Decision(found.workers, reason)
        self._before, self._objections = None, 0
        if is_more:
            self._most = Decision(max(before.workers, found.workers // 2), reason)
        else:
            self._least = Decision(before.workers, reason)
        return Decision(before.workers, reason)

    def _wanted(self, found: Measurement, limits: Sequence[Decision]) -> Decision:
        """Return the number that a measurement asks for, within limits and bounds."""
        workers = found.workers
        used_s = max(found.seconds - found.waited_s, 1e-9)
        needed = math.ceil(min(HEADROOM * found.busy_s / used_s, MAX_WORKERS))
        reason = f"the consumer waits {found.waited:.0%} of the time"
        most = MAX_GROWTH * workers
        if found.waited <= MAX_WAITED:
            most = workers
        elif found.idle > MAX_IDLE:
            reason += f", but the workers are idle {found.idle:.0%} of it"
            needed = math.ceil(workers * (1 - found.idle) * HEADROOM)
            most = workers
        wanted = Decision(max(1, min(needed, most)), reason)
        limit = min((*limits, self._most), key=lambda each: each.workers)
        if found.waited > MAX_WAITED and limit.workers < wanted.workers:
            wanted = limit
        if wanted.workers < self._least.workers <= workers:
            wanted = self._least
        is_close = MIN_SHRINK * workers < wanted.workers < MIN_GROWTH * workers
        return wanted._replace(workers=workers) if is_close else wanted


def _helped(before: Measurement, found: Measurement) -> bool:
    """Return whether another number of workers is at least as good as the last one."""
    if found.waited <= MAX_WAITED:
        return True
    if found.workers > before.workers:
        return found.rate >= MIN_GAIN * before.rate
    return before.waited > MAX_WAITED and found.rate >= MIN_KEPT * before.rate
