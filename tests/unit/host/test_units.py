"""The units of a pool, against a plain model of ranks that take them."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._host.units import Units
from gristmill._pool.unit_task import UnitTask

OUTPUTS = 12


@dataclasses.dataclass(eq=False)
class Reader:
    """A rank that requests units 0, 1, ... in order, one at a time."""

    rank: int
    at: int = 0
    is_live: bool = True
    is_waiting: bool = False
    awaits: int = -1
    views: list[int] = dataclasses.field(default_factory=list)
    received: list[int] = dataclasses.field(default_factory=list)

    @property
    def job(self) -> Reader:
        return self


class Pool:
    """Plays the server: requests, computes, delivers and frees."""

    def __init__(self, ranks: int, window: int, *, shared: bool) -> None:
        members = range(ranks) if shared else None
        self.units = Units(members, window, self.free)
        self.window = window
        self.readers = [Reader(rank) for rank in range(ranks)]
        self.slots: set[int] = set()
        self.next_slot = 0
        self.computing = []
        self.computed = 0

    def free(self, unit):
        if unit.worker is None and unit.slot >= 0:
            self.slots.remove(unit.slot)
            unit.slot = -1

    def request(self, reader):
        if not reader.is_live or reader.awaits >= 0 or reader.at == OUTPUTS:
            return
        key = "program", UnitTask(0, False, reader.at, 1, 0, ())
        unit = self.units.find(key, reader)
        if unit is None:
            waiting = {r.rank for r in self.readers if r.is_live and r.is_waiting}
            if self.units.blocking_ranks(reader.rank, waiting):
                reader.is_waiting = True
                return
            unit = self.units.add(key, key[1], reader.rank)
        reader.is_waiting = False
        reader.awaits = reader.at
        self.units.take(unit, reader)
        if unit.result is not None:
            self.deliver(unit)

    def start(self):
        if self.units.queue:
            unit = self.units.queue.popleft()
            unit.slot, unit.worker = self.next_slot, "worker"
            self.slots.add(unit.slot)
            self.next_slot += 1
            self.computing.append(unit)

    def finish(self, number, *, dies=False):
        if not self.computing:
            return
        unit = self.computing.pop(number % len(self.computing))
        unit.worker = None
        if dies:
            lanes, unit.lanes = unit.lanes, []
            self.units.remove(unit)
            for reader in lanes:
                reader.awaits = -1
            return
        self.computed += 1
        unit.result = bytes([unit.task.first])
        if unit.is_unused:
            self.units.remove(unit)
        else:
            self.deliver(unit)

    def deliver(self, unit):
        lanes, unit.lanes = unit.lanes, []
        unit.holders.update(lanes)
        for reader in lanes:
            assert reader.awaits == unit.task.first
            assert unit.slot in self.slots
            reader.received.append(unit.task.first)
            reader.views.append(unit.number)
            reader.awaits = -1
            reader.at += 1

    def release(self, reader, number):
        if reader.views:
            self.units.release(reader.views.pop(number % len(reader.views)), reader)

    def end(self, reader, *, comes_back):
        """End a reader, and put another one with an older state in its place."""
        if not reader.is_live:
            return
        reader.is_live = reader.is_waiting = False
        self.units.leave(reader.rank)
        self.units.release_all(reader)
        if comes_back:
            self.units.join(reader.rank)
            at = max(0, reader.at - 2)
            successor = Reader(reader.rank, at, received=reader.received[:at])
            self.readers[reader.rank] = successor

    def step(self, action, number):
        reader = self.readers[number % len(self.readers)]
        if action == "request":
            self.request(reader)
        elif action == "start":
            self.start()
        elif action in ("finish", "die"):
            self.finish(number, dies=action == "die")
        elif action == "release":
            self.release(reader, number)
        else:
            self.end(reader, comes_back=action == "come back")
        for other in self.readers:
            if other.is_waiting:
                self.request(other)

    def run_to_the_end(self):
        for _ in range(40 * OUTPUTS * len(self.readers)):
            for reader in self.readers:
                self.request(reader)
                self.release(reader, 0)
            self.start()
            self.finish(0)


ACTIONS = st.sampled_from(
    ["request"] * 5
    + ["start"] * 3
    + ["finish"] * 3
    + ["release"] * 3
    + ["die", "leave", "come back"]
)


@settings(max_examples=200, deadline=None)
@given(
    ranks=st.integers(1, 3),
    window=st.integers(1, 4),
    shared=st.booleans(),
    actions=st.lists(st.tuples(ACTIONS, st.integers(0, 11)), max_size=80),
)
def test_each_rank_gets_each_unit_once_and_slots_are_freed(
    ranks, window, shared, actions
):
    pool = Pool(ranks, window, shared=shared)
    for action, number in actions:
        pool.step(action, number)
    pool.run_to_the_end()
    for reader in pool.readers:
        if reader.is_live:
            assert reader.received == list(range(OUTPUTS))
            for _ in [*reader.views]:
                pool.release(reader, 0)
    assert not pool.slots
    assert not pool.units.programs()


@settings(max_examples=50, deadline=None)
@given(window=st.integers(1, 4), order=st.lists(st.integers(0, 2), max_size=60))
def test_ranks_within_the_window_share_each_unit(window, order):
    pool = Pool(3, window, shared=True)
    for number in order:
        pool.step("request", number)
        pool.step("start", 0)
        pool.step("finish", 0)
        pool.step("release", number)
        ahead = max(r.at for r in pool.readers) - min(r.at for r in pool.readers)
        assert ahead <= window
        assert len(pool.slots) <= window + 3
    assert pool.computed == max(reader.at for reader in pool.readers)


def test_slot_of_a_removed_unit_is_freed_when_its_worker_dies():
    pool = Pool(1, 4, shared=False)
    pool.request(pool.readers[0])
    pool.start()
    pool.end(pool.readers[0], comes_back=False)
    assert pool.slots
    pool.finish(0, dies=True)
    assert not pool.slots


def test_views_outlive_the_rank_that_has_left():
    pool = Pool(2, 4, shared=True)
    first, second = pool.readers
    pool.request(first)
    pool.start()
    pool.finish(0)
    pool.request(second)
    pool.units.leave(0)
    pool.release(second, 0)
    assert pool.slots
    pool.release(first, 0)
    assert not pool.slots
