"""The units that ranks request from a pool.

With ``mode="deal"`` each rank requests units of its own.  With ``mode="broadcast"``
ranks request the same units, and each is computed once: it is kept until all ranks have
taken it.  At most `window` units are kept for ranks that have not taken them; then the
requests of other ranks for new units wait.
"""

from __future__ import annotations

import collections
import dataclasses
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from gristmill._pool.unit_task import UnitTask

# The program, and the task without its attempt.
Key = tuple[str, UnitTask]

# A rank is not expected to request one of its last units again.
HISTORY = 1024


@dataclasses.dataclass(eq=False)
class Unit:
    """A unit, from the first request until its memory is reused.

    Attributes:
        number: Its number in the pool.
        key: Its key.
        task: The task, as it was requested first.
        lanes: The lanes that wait for it.
        worker: The worker that computes it, or None.
        slot: The offset of its slot; -1 if it has none.
        result: The packet of the result; None before it is computed.
        takers: The jobs that have requested it.
        holders: The jobs that have views of it.
        expected: The ranks that have yet to request it.
    """

    number: int
    key: Key
    task: UnitTask
    lanes: list[Any] = dataclasses.field(default_factory=list)
    worker: Any = None
    slot: int = -1
    result: bytes | None = None
    takers: set[Any] = dataclasses.field(default_factory=set)
    holders: set[Any] = dataclasses.field(default_factory=set)
    expected: set[int] = dataclasses.field(default_factory=set)

    @property
    def program(self) -> str:
        """The key of the program whose unit this is."""
        return self.key[0]

    @property
    def is_unused(self) -> bool:
        """Whether no rank has, awaits or expects it."""
        return not (self.lanes or self.holders or self.expected)


class Units:
    """The units of a pool, and the ranks that take them.

    A lane has a `job`, which stands for one connection of a rank, and the job's `rank`.
    A rank that connects again has another job, while arrays may view units of the old.

    Args:
        members: The ranks that will read the same units; None if each rank requests
            units of its own.
        window: The number of units that are kept for ranks that have not taken them.
        free: Called with each unit that is removed, perhaps again when its worker is
            done.
    """

    def __init__(
        self,
        members: Iterable[int] | None,
        window: int,
        free: Callable[[Unit], None],
    ) -> None:
        # The ranks that will take the units that are requested from now on.
        self._members = set(members or ())
        self._shared = members is not None
        self._window = window
        self._free = free
        # Random, so that units of another server have other numbers.
        self._next_number = secrets.randbits(48)
        self._by_number: dict[int, Unit] = {}
        self._shared_by_key: dict[Key, Unit] = {}
        # The units that some rank is expected to request, oldest first.
        self._kept: dict[Unit, None] = {}
        # For each rank, the hashes of the last keys that it requested, oldest first.
        self._histories: dict[int, dict[int, None]] = {}
        # The units to compute, oldest first.
        self.queue: collections.deque[Unit] = collections.deque()

    def join(self, rank: int) -> None:
        """Count on a rank to take the units that are requested from now on."""
        if self._shared:
            self._members.add(rank)

    def leave(self, rank: int) -> None:
        """Forget a rank, but not the views that it has."""
        self._members.discard(rank)
        self._histories.pop(rank, None)
        for unit in [*self._by_number.values()]:
            unit.lanes = [lane for lane in unit.lanes if lane.rank != rank]
            self._stop_expecting(unit, {rank})
            self.remove_unused(unit)

    def release_all(self, job: Any) -> None:
        """Record that a job has no views anymore."""
        for unit in [*self._by_number.values()]:
            unit.takers.discard(job)
            unit.holders.discard(job)
            self.remove_unused(unit)

    def programs(self) -> set[str]:
        """Return the keys of the programs whose units may have to be computed."""
        return {unit.program for unit in self._by_number.values()}

    def find(self, key: Key, job: Any) -> Unit | None:
        """Return the unit that other jobs have requested; None if `job` had it.

        A rank may have changed the elements of a unit that it had.
        """
        unit = self._shared_by_key.get(key)
        return None if unit is None or job in unit.takers else unit

    def blocking_ranks(self, rank: int, waiting: set[int]) -> set[int]:
        """Return the ranks for which a rank has to wait before it gets a new unit.

        Args:
            rank: The rank that requests a unit.
            waiting: The ranks whose requests for new units wait.  They will not take
                the units that are kept for them, since they continue after these.
        """
        while len(self._kept) >= self._window:
            oldest = next(iter(self._kept))
            if slow := oldest.expected - waiting - {rank}:
                return slow
            self._stop_expecting(oldest, set(oldest.expected))
            self.remove_unused(oldest)
        return set()

    def add(self, key: Key, task: UnitTask, rank: int) -> Unit:
        """Queue a new unit that a rank requests."""
        unit = Unit(self._next_number, key, task)
        self._next_number += 1
        self._by_number[unit.number] = unit
        # Otherwise, the rank repeats a unit that the others have or will get.
        if self._shared and key not in self._shared_by_key:
            self._shared_by_key[key] = unit
            unit.expected = {
                member
                for member in self._members - {rank}
                if hash(key) not in self._histories.get(member, ())
            }
            if unit.expected:
                self._kept[unit] = None
        self.queue.append(unit)
        return unit

    def take(self, unit: Unit, lane: Any) -> None:
        """Record that a lane waits for a unit."""
        unit.lanes.append(lane)
        unit.takers.add(lane.job)
        self._stop_expecting(unit, {lane.rank})
        if self._shared:
            history = self._histories.setdefault(lane.rank, {})
            history[hash(unit.key)] = None
            if len(history) > HISTORY:
                del history[next(iter(history))]

    def waited_for(self, lane: Any) -> list[Unit]:
        """Return the units that a lane waits for: one, or none."""
        return [unit for unit in self._by_number.values() if lane in unit.lanes]

    def release(self, number: int, job: Any) -> None:
        """Record that a job has no views of a unit anymore."""
        if unit := self._by_number.get(number):
            unit.holders.discard(job)
            self.remove_unused(unit)

    def remove(self, unit: Unit) -> None:
        """Remove a unit, so that the next request for it computes it again."""
        if self._by_number.pop(unit.number, None) is not None:
            if self._shared_by_key.get(unit.key) is unit:
                del self._shared_by_key[unit.key]
            self._kept.pop(unit, None)
            if unit in self.queue:
                self.queue.remove(unit)
        self._free(unit)

    def remove_unused(self, unit: Unit) -> None:
        """Remove a unit if no rank uses it.  A worker may still compute it."""
        if unit.is_unused:
            self.remove(unit)

    def _stop_expecting(self, unit: Unit, ranks: set[int]) -> None:
        unit.expected -= ranks
        if not unit.expected:
            self._kept.pop(unit, None)
