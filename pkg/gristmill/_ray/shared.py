"""Streams that several jobs read: each unit is computed once and kept for a while.

The first job that requests a unit has it computed.  The unit is kept until the same
job has had `window` more units computed.  Later requests for it raise `LaggingError`.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from gristmill._pool.pool import Lane
from gristmill._pool.unit_task import UnitTask

# Keys of at most this many dropped units are kept, to detect requests for them.
MAX_DROPPED_KEYS = 1 << 16

Key = bytes


def key_of(task: UnitTask) -> Key:
    """Return a digest of all fields of a task except for its attempt."""
    return hashlib.blake2b(repr(task._replace(attempt=0)).encode()).digest()


class LaggingError(Exception):
    """Raised if a unit was computed but is no longer kept."""


@dataclasses.dataclass(eq=False)
class Unit:
    """A unit that a lane computes or has computed.

    Attributes:
        number: Its position in the sequence of units of the stream, from 0.
        lane: The lane that has it computed.
        reply: The reply for it, a `gristmill._ray.hub.Reply`.  The hub's call for
            `lane` sets it, and calls for other lanes wait for it.
    """

    number: int
    lane: Lane
    reply: Future[Any] = dataclasses.field(default_factory=Future)


class SharedStream:
    """The units of one pipeline.  Calls of the hub use it from several threads.

    Args:
        parts: Maps names of the pipeline's parts to digests; see
            `gristmill._pool.identity`.
        window: The number of units kept for each job that had them computed.
    """

    def __init__(self, parts: dict[str, str], window: int) -> None:
        self.parts = parts
        self.window = window
        # Guards the fields below.
        self._lock = threading.Lock()
        self._unit_count = 0
        self._units: dict[Key, Unit] = {}
        # The units that may be kept, oldest first, by the job that had them computed;
        # None for jobs that have left.  May include units that were withdrawn.
        self._units_by_job: dict[str | None, collections.deque[tuple[Key, Unit]]] = (
            collections.defaultdict(collections.deque)
        )
        # The keys of units that are no longer kept, oldest first.
        self._dropped: dict[Key, None] = {}

    def claim(
        self, task: UnitTask, lane: Lane, job: str, lost: int
    ) -> tuple[Unit, bool]:
        """Return the unit of a task, and whether the caller must have it computed.

        Args:
            task: The task.
            lane: The lane that has the unit computed, if no lane has yet.
            job: The job of the lane.
            lost: The number of a unit whose answer was lost, to replace it; -1 if none
                was lost.  If another job has replaced it, its number differs.

        Raises:
            LaggingError: The unit was dropped.
        """
        key = key_of(task)
        with self._lock:
            unit = self._units.get(key)
            if unit is not None and unit.number != lost:
                return unit, False
            if key in self._dropped:
                raise LaggingError
            unit = self._units[key] = Unit(self._unit_count, lane)
            self._unit_count += 1
            self._keep(job, [(key, unit)])
            return unit, True

    def withdraw(self, task: UnitTask, unit: Unit) -> None:
        """Remove the unit, so that the next caller has it computed again."""
        key = key_of(task)
        with self._lock:
            if self._units.get(key) is unit:
                del self._units[key]

    def leave(self, job: str) -> None:
        """Remove a job; its units are kept for other jobs, within one window."""
        with self._lock:
            self._keep(None, self._units_by_job.pop(job, ()))

    def _keep(self, job: str | None, units: Iterable[tuple[Key, Unit]]) -> None:
        """Keep units for a job, and drop those beyond its window; `_lock` is held."""
        job_units = self._units_by_job[job]
        job_units.extend(units)
        while len(job_units) > self.window:
            key, unit = job_units.popleft()
            if self._units.get(key) is unit:
                del self._units[key]
                self._dropped[key] = None
        while len(self._dropped) > MAX_DROPPED_KEYS:
            del self._dropped[next(iter(self._dropped))]
