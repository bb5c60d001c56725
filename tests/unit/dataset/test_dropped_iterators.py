"""Iterators that are dropped, closed or fail to start release everything."""

import gc
import threading
import weakref

import pytest

import gristmill
from faults.toolbox import wait_until
from gristmill import experimental
from gristmill._dataset.model.node import chain_of
from gristmill._engine import reading
from support.waiting import started_since, wait_until_ended

CHAINS = {
    "map": lambda ds: ds,
    "iter": lambda ds: ds.to_iter_dataset(),
    "mapped": lambda ds: ds.to_iter_dataset().map(str),
    "filtered": lambda ds: ds.filter(bool).to_iter_dataset(),
    "batched": lambda ds: ds.to_iter_dataset().batch(2),
    "mixed": lambda ds: gristmill.IterDataset.mix([ds.to_iter_dataset()] * 2),
    "repeated": lambda ds: experimental.RepeatIterDataset(ds.to_iter_dataset()),
}


@pytest.fixture
def without_threads(monkeypatch):
    """Never classify a read as waiting, even on a busy machine."""
    monkeypatch.setattr(reading, "LONG_READ_S", 1e6)
    monkeypatch.setattr(reading, "SLOW_READ_S", 1e6)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.usefixtures("without_threads")
def test_dropped_iterator_is_freed_at_once(chain):
    ds = gristmill.MapDataset.range(50).map(lambda x: x + 1)
    gc.disable()
    try:
        iterator = iter(CHAINS[chain](ds))
        next(iterator)
        freed = weakref.ref(iterator)
        del iterator
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.usefixtures("without_threads")
def test_dropped_dataset_is_freed_at_once(chain):
    gc.disable()
    try:
        ds = gristmill.MapDataset.range(50).map(lambda x: x + 1).seed(1).shuffle()
        ds = CHAINS[chain](ds.map(lambda x: x))
        iterator = iter(ds)
        next(iterator)
        freed = [weakref.ref(node) for node in chain_of(ds)]
        del ds, iterator
        assert [node() for node in freed] == [None] * len(freed)
    finally:
        gc.enable()


def test_read_ahead_threads_end_after_break(monkeypatch):
    monkeypatch.setattr(reading, "SLOW_READ_S", -1.0)
    before = set(threading.enumerate())
    go_on = threading.Event()

    def slow(index):
        go_on.wait(1e-3)
        return index

    gc.disable()
    try:
        for _ in gristmill.MapDataset.range(5000).map(slow):
            started = started_since(before)
            if started:
                break
        go_on.set()
        assert started
        wait_until_ended(started)
    finally:
        gc.enable()


def test_closed_interleave_stays_closed():
    parts = [gristmill.MapDataset.range(5).to_iter_dataset()] * 2
    iterator = iter(experimental.InterleaveIterDataset(parts, cycle_length=2))
    next(iterator)
    state = iterator.get_state()
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator"):
        iterator.set_state(state)
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)


def test_returned_elements_are_not_kept():
    class Element:
        pass

    alive: weakref.WeakSet[Element] = weakref.WeakSet()
    given = 0

    def make(index):
        return Element()

    def load(element):
        alive.add(element)
        return element

    ds = gristmill.MapDataset.range(5000).map(make).to_iter_dataset().map(load)
    for _element in ds:
        given += 1
        assert len(alive) <= 2
    assert given == 5000


def test_failing_len_raises_without_warnings(recwarn):
    class Bad(gristmill.MapDataset):
        def __len__(self):
            raise ValueError("no length")

        def __getitem__(self, index):
            return index

    with pytest.raises(ValueError, match="no length"):
        iter(Bad())
    gc.collect()
    assert not recwarn.list


class Noting(gristmill.DatasetIterator):
    """Writes to a file when it is closed, and when its generator ends."""

    def __init__(self, log):
        super().__init__()
        self.log = log
        self.numbers = self.iterate()

    def iterate(self):
        try:
            yield from range(1000)
        finally:
            self.note("ended")

    def note(self, word):
        with open(self.log, "a") as file:
            file.write(f"{word}\n")

    def __next__(self):
        return next(self.numbers)

    def get_state(self):
        return {}

    def set_state(self, state):
        raise NotImplementedError

    def close(self):
        self.note("closed")


class Noted(gristmill.IterDataset):
    def __init__(self, log):
        super().__init__()
        self.log = log

    def __iter__(self):
        return Noting(self.log)


@pytest.mark.multiprocess
@pytest.mark.parametrize("way", ["del", "close", "break"])
def test_worker_iterators_are_closed_with_their_chain(way, tmp_path):
    log = tmp_path / "log"
    chain = Noted(log).mp_prefetch(gristmill.MultiprocessingOptions(num_workers=1))
    iterator = iter(chain)
    for _ in iterator:
        break
    if way == "close":
        iterator.close()
    del iterator
    gc.collect()
    for _ in wait_until("an iterator that is closed"):
        if log.exists() and {"closed", "ended"} <= {*log.read_text().split()}:
            break


def test_next_on_closed_iterator_keeps_its_state():
    iterator = iter(gristmill.MapDataset.range(9).to_iter_dataset().map(str))
    next(iterator)
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)
    assert iterator.get_state() == {"next_index": 1}
