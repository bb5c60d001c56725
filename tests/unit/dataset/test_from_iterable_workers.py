"""Datasets of generators and iterables in worker processes."""

import collections
import itertools
import json
import os
import pathlib
import signal
import threading

import pytest

import gristmill as g
from gristmill import experimental as ex
from support.waiting import wait_for

from_iterable = g.IterDataset.from_iterable
LENGTH = 17
TWO = g.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=2)


def share(shard_index, shard_count):
    yield from range(shard_index, LENGTH, shard_count)


class Shards:
    """An iterable of shards with a state, like a Hugging Face dataset."""

    def __init__(self, shards):
        self.shards = shards
        self.start = self.at = 0

    @property
    def num_shards(self):
        return len(self.shards)

    def shard(self, num_shards, index):
        return Shards(self.shards[index::num_shards])

    def __iter__(self):
        rows = [row for shard in self.shards for row in shard]
        self.at, self.start = self.start, 0
        while self.at < len(rows):
            self.at += 1
            yield rows[self.at - 1]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.start = state["at"]


SHARDS = Shards([range(5), range(5, 7), range(7, LENGTH)])
SOURCES = {
    "function": lambda: from_iterable(share, replay=True),
    "shards": lambda: from_iterable(SHARDS),
}


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", SOURCES)
def test_workers_yield_each_element_once_and_resume(name):
    ds = SOURCES[name]().map(lambda x: x).mp_prefetch(TWO)
    expected = list(ds)
    assert sorted(expected) == list(range(LENGTH))
    if name == "function":
        assert expected == list(range(LENGTH))
    iterator = iter(ds)
    assert list(itertools.islice(iterator, 7)) == expected[:7]
    state = json.loads(json.dumps(iterator.get_state()))
    iterator.close()
    iterator = iter(ds)
    iterator.set_state(state)
    assert list(iterator) == expected[7:]
    iterator.close()


@pytest.mark.multiprocess
def test_workers_without_state_iterate_and_reject_states():
    ds = from_iterable(share).batch(2).mp_prefetch(TWO).map(lambda batch: batch.sum())
    iterator = iter(ds)
    first = next(iterator)
    with pytest.raises(TypeError, match="share has no state"):
        iterator.get_state()
    assert first + sum(iterator) == sum(range(LENGTH))


@pytest.mark.multiprocess
@pytest.mark.parametrize("replay", [False, True])
def test_dead_worker_is_replaced_only_with_replay(replay, tmp_path):
    died = tmp_path / "died"

    def dies_once(x):
        if x == 9 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    options = g.MultiprocessingOptions(num_workers=1)
    ds = from_iterable(share, replay=replay).map(dies_once).mp_prefetch(options)
    if replay:
        assert list(ds) == list(range(LENGTH))
        return
    with pytest.raises(Exception, match="share has no state"):
        list(ds)


@pytest.mark.multiprocess
def test_closing_runs_finally_of_the_generator_in_the_worker(tmp_path):
    closed = tmp_path / "closed"

    def read():
        try:
            yield from itertools.count()
        finally:
            closed.touch()

    ds = from_iterable(read).mp_prefetch(g.MultiprocessingOptions(num_workers=1))
    iterator = iter(ds)
    assert next(iterator) == 0
    iterator.close()
    wait_for(closed.exists)


@pytest.mark.multiprocess
def test_unpicklable_iterable_is_named():
    class Locked:
        lock = None

        def __iter__(self):
            return iter(range(3))

    source = Locked()
    source.lock = threading.Lock()
    ds = from_iterable(source).mp_prefetch(g.MultiprocessingOptions(num_workers=1))
    with pytest.raises(TypeError) as caught:
        next(iter(ds))
    notes = "".join(caught.value.__notes__)
    assert "IterableSourceDataset(iterable=Locked) cannot be pickled" in notes


WHOLE = {
    "list": [1, 2],
    "function": lambda: iter([1, 2]),
    "deque": collections.deque([1]),
    "path": pathlib.Path(__file__).open,
}


@pytest.mark.parametrize("name", WHOLE)
def test_indivisible_iterable_is_rejected_for_several_workers(name):
    ds = from_iterable(WHOLE[name]).map(lambda x: x)
    with pytest.raises(ValueError, match=r"cannot be divided among 2 workers: each"):
        ds.mp_prefetch(TWO)
    with pytest.raises(ValueError, match="shard_index and shard_count"):
        ex.multithread_prefetch(ds, 2, buffer_size=1)
    one = ds.mp_prefetch(g.MultiprocessingOptions(0), streams=1)
    assert list(one) == list(ds)


def test_iterable_with_too_few_shards_is_rejected():
    ds = from_iterable(SHARDS).mp_prefetch(g.MultiprocessingOptions(0), streams=3)
    assert sorted(ds) == list(range(LENGTH))
    with pytest.raises(ValueError, match=r"Shards has 3 shards.*at most 3 workers"):
        from_iterable(SHARDS).mp_prefetch(g.MultiprocessingOptions(4))


def test_interleaved_iterables_are_divided_as_a_whole():
    parts = [from_iterable([1, 2]), from_iterable([3, 4])]
    ds = ex.InterleaveIterDataset(parts, cycle_length=2)
    ds = ds.mp_prefetch(g.MultiprocessingOptions(0), streams=2)
    assert list(ds) == [1, 3, 2, 4]


@pytest.mark.parametrize("name", SOURCES)
def test_threads_yield_each_element_once(name):
    ds = ex.multithread_prefetch(SOURCES[name](), 3, buffer_size=2)
    expected = list(ds)
    assert sorted(expected) == list(range(LENGTH))
    iterator = iter(ds)
    for _ in range(4):
        next(iterator)
    again = iter(ds)
    again.set_state(iterator.get_state())
    assert list(again) == expected[4:]


def test_nested_shares_cover_each_element_once():
    ds = from_iterable(share)
    read = []
    for outer in range(2):
        part = ex.multithread_prefetch(ds, 2, buffer_size=1)._parent.datasets[outer]
        read += part.mp_prefetch(g.MultiprocessingOptions(0), streams=2)
    assert sorted(read) == list(range(LENGTH))


@pytest.mark.multiprocess
def test_report_does_not_try_more_workers_than_shares():
    ds = from_iterable(lambda: itertools.repeat(1, 10**6)).batch(100)
    iterator = iter(ds.mp_prefetch(g.MultiprocessingOptions(num_workers=1)))
    for _ in range(20):
        next(iterator)
    report = iterator.report(verify=True, seconds=0.05)
    iterator.close()
    assert "cannot be divided among 2 workers" in str(report)
