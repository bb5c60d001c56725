"""What several jobs read of one stream: each unit is computed once, and kept a while.

Whoever asks for a unit first has it computed.  It is kept until that job has had some
more computed, its window; a job that asks for it later lags.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import threading
from concurrent.futures import Future
from typing import Any

from gristmill._ray.actor import Task
from gristmill._ray.pool import Lane

# Units that were kept once and are known to be gone.
MOST_GONE = 1 << 16

Key = bytes


def key_of(task: Task) -> Key:
    """What makes two tasks the same; the attempt does not."""
    return hashlib.blake2b(repr(task._replace(attempt=0)).encode()).digest()


class Lagging(Exception):
    """A unit was kept, and is not any more."""


@dataclasses.dataclass(eq=False)
class Unit:
    """A unit that somebody asked for.

    Attributes:
        number: It was the how manyth.
        lane: Who has it computed.
        reply: What came of it, sooner or later.
    """

    number: int
    lane: Lane
    reply: Future[Any] = dataclasses.field(default_factory=Future)


class SharedStream:
    """The units of one pipeline.

    Args:
        parts: What the pipeline is, part by part; see `gristmill._ray.identity`.
        window: How many units are kept of those that one job had computed.
    """

    def __init__(self, parts: dict[str, str], window: int) -> None:
        self.parts = parts
        self.window = window
        self._lock = threading.Lock()
        self._asked = 0
        self._units: dict[Key, Unit] = {}
        # By who had them computed; those of jobs that left are None's.
        self._caused: dict[str | None, collections.deque[tuple[Key, Unit]]] = (
            collections.defaultdict(collections.deque)
        )
        self._gone: dict[Key, None] = {}

    def claim(self, task: Task, lane: Lane, job: str, lost: int) -> tuple[Unit, bool]:
        """The unit of a task, and whether it is the caller who has it computed.

        Args:
            task: See there.
            lane: Who has it computed, if nobody has.
            job: Whose lane that is.
            lost: The number of a unit whose answer is lost: it is computed again.

        Raises:
            Lagging: It was dropped.
        """
        key = key_of(task)
        with self._lock:
            unit = self._units.get(key)
            if unit is not None and unit.number != lost:
                return unit, False
            if key in self._gone:
                raise Lagging
            unit = self._units[key] = Unit(self._asked, lane)
            self._asked += 1
            self._keep(job, [(key, unit)])
            return unit, True

    def withdraw(self, task: Task, unit: Unit) -> None:
        """Have the unit computed again by whoever asks next."""
        key = key_of(task)
        with self._lock:
            if self._units.get(key) is unit:
                del self._units[key]

    def leave(self, job: str) -> None:
        """What a job had computed is kept for others as if it had not left."""
        with self._lock:
            self._keep(None, self._caused.pop(job, ()))

    def _keep(self, job: str | None, units: Any) -> None:
        caused = self._caused[job]
        caused.extend(units)
        while len(caused) > self.window:
            key, unit = caused.popleft()
            if self._units.get(key) is unit:
                del self._units[key]
                self._gone[key] = None
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
