"""Threads read ahead if calls wait, and not if they compute."""

import threading
import time

import numpy as np
import pytest

import gristmill as g
from gristmill._base import blocked_time
from gristmill._base.blocked_time import Clocks
from gristmill._engine import block_queue
from gristmill._engine.block_queue import BlockQueue

# Clock deltas of a call that takes a millisecond.
WAITS = Clocks(wall_s=1e-3, own_s=1e-5, helpers_s=1e-5, pauses=1)
BUSY = {
    "computes": Clocks(wall_s=1e-3, own_s=1e-3, helpers_s=0.0, pauses=0),
    "has helpers compute": Clocks(wall_s=1e-3, own_s=0.0, helpers_s=2e-3, pauses=1),
    "has helpers that other processes set aside": Clocks(1e-3, 0.0, 3e-4, 1),
    "is set aside for other processes": Clocks(1e-3, 1e-5, 0.0, 0),
}


class Machine:
    """Clocks that advance only by does()."""

    def __init__(self, monkeypatch):
        self.now = Clocks(0.0, 0.0, 0.0, 0)
        monkeypatch.setattr(blocked_time, "clocks", lambda: self.now)

    def does(self, what):
        pairs = zip(self.now, what, strict=True)
        self.now = Clocks(*(before + more for before, more in pairs))


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_waiting_time_excludes_own_and_helper_cpu():
    begin = Clocks(10.0, 3.0, 2.0, 7)
    assert blocked_time.waited_s(begin, Clocks(10.5, 3.0, 2.0, 8)) == 0.5
    assert blocked_time.waited_s(begin, Clocks(10.5, 3.25, 2.0, 9)) == 0.25
    assert blocked_time.waited_s(begin, Clocks(10.5, 3.0, 2.1, 9)) == 0.0


def test_thread_without_pauses_has_not_waited():
    assert (
        blocked_time.waited_s(Clocks(10.0, 3.0, 0.0, 7), Clocks(12.0, 3.5, 0.0, 7))
        == 0.0
    )


def test_other_threads_cpu_not_counted():
    asked, burned, done = (threading.Event() for _ in range(3))

    def burn():
        asked.wait()
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        burned.set()
        done.wait()

    other = threading.Thread(target=burn)
    other.start()
    before = blocked_time.clocks()
    asked.set()
    burned.wait()
    after = blocked_time.clocks()
    done.set()
    other.join()
    assert after.helpers_s - before.helpers_s < 0.025
    assert after.own_s - before.own_s < 0.025
    assert after.pauses > before.pauses


class Source:
    """Advances the clocks on each read, and records the reading threads."""

    def __init__(self, machine, what):
        self.machine = machine
        self.what = what
        # Clock deltas of each read after the first; None: those of the first.
        self.later = None
        self.threads = []

    def __len__(self):
        return 50

    def __getitem__(self, key):
        self.threads.append(threading.current_thread())
        self.machine.does(self.what)
        self.what = self.later or self.what
        return key


def loaded(source):
    sampler = g.SequentialSampler(len(source))
    return g.DataLoader(data_source=source, sampler=sampler, operations=[])


FACES = {
    "a loader": loaded,
    "a dataset": g.MapDataset.source,
    "a map": lambda source: g.MapDataset.source(range(50)).map(source.__getitem__),
}


@pytest.mark.parametrize("face", FACES)
def test_waiting_source_is_read_by_threads(machine, face):
    source = Source(machine, WAITS)
    assert list(FACES[face](source)) == list(range(50))
    # The caller reads the first record, which shows that reading waits.
    assert source.threads[0] is threading.current_thread()
    assert threading.current_thread() not in source.threads[1:]


@pytest.mark.parametrize("what", BUSY)
@pytest.mark.parametrize("face", FACES)
def test_source_waiting_only_once_returns_to_caller(machine, face, what):
    source = Source(machine, WAITS)
    source.later = BUSY[what]
    assert list(FACES[face](source)) == list(range(50))
    assert set(source.threads[-10:]) == {threading.current_thread()}


@pytest.mark.parametrize("what", BUSY)
@pytest.mark.parametrize("face", FACES)
def test_busy_source_is_read_by_caller(machine, face, what):
    source = Source(machine, BUSY[what])
    assert list(FACES[face](source)) == list(range(50))
    assert set(source.threads) == {threading.current_thread()}


class Blocks:
    """Blocks that a queue reads; records the sizes of the pools that it received."""

    allows_threads, can_join, whole, far = True, True, False, False
    slow_record_s, slow_byte_s = 1e-6, 0.0
    threads_if_fast = 0

    def __init__(self, machine, what):
        self.machine = machine
        self.what = what
        self.pools = set()
        # Number of records in each read by the caller.
        self.read_here = []

    def read(self, keys, alloc):
        self.read_here.append(len(keys))
        self.machine.does(self.what)
        return keys.tolist()

    def begin(self, keys, alloc, pool):
        self.pools.add(pool.threads)
        return keys.tolist

    def join(self, first, second):
        return first + second

    def nbytes(self, block):
        return len(block)


class Keys:
    length = 1000

    def block(self, first, count):
        return np.arange(first, first + count)


def test_rest_of_block_is_read_by_threads_if_first_waits(machine):
    blocks = Blocks(machine, WAITS)
    queue = BlockQueue(blocks, Keys(), g.ReadOptions(5, 100), look_ahead=True)
    assert queue.take(0, np.arange(10)) == list(range(10))
    assert blocks.read_here == [1]
    assert blocks.pools == {5}
    queue.close()


def test_threads_stop_if_only_first_record_waits(machine):
    blocks = Blocks(machine, WAITS)
    queue = BlockQueue(blocks, Keys(), g.ReadOptions(5, 100), look_ahead=True)
    queue.take(0, np.arange(10))
    blocks.what = BUSY["computes"]
    for position in range(10, 60, 10):
        queue.take(position, np.arange(position, position + 10))
    # The caller reads one block itself, sees that it computes, and continues.
    assert blocks.read_here == [1, 10, 10, 10, 10, 10]
    queue.close()


@pytest.mark.parametrize("what", [WAITS, *BUSY.values()])
def test_waiting_blocks_use_num_threads_of_read_options(machine, what):
    blocks = Blocks(machine, what)
    queue = BlockQueue(blocks, Keys(), g.ReadOptions(5, 100), look_ahead=True)
    assert block_queue.BLOCKS_BETWEEN_PROBES > 10
    for position in range(0, 100, 10):
        keys = np.arange(position, position + 10)
        assert queue.take(position, keys) == keys.tolist()
        queue.look_ahead(position + 10, 10)
    queue.close()
    assert blocks.pools == ({5} if what is WAITS else set())
