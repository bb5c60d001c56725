"""A thread computes elements before they are needed."""

import gc
import os
import subprocess
import threading

import pytest

import gristmill
from faults.scripts import command, environment, run
from gristmill._dataset.nodes import thread_prefetch
from gristmill.experimental import (
    ThreadPrefetchDatasetIterator,
    ThreadPrefetchIterDataset,
    get_next_index,
    set_next_index,
)
from support.twins import assert_twins, grain
from support.waiting import started_since, wait_until_ended

# Thresholds that all elements and no elements exceed, respectively.
ALL_SLOW_S, ALL_FAST_S = -1.0, 1e9


@pytest.fixture
def slow(monkeypatch):
    """Make every element count as slow."""
    monkeypatch.setattr(thread_prefetch, "FAST_ELEMENT_S", ALL_SLOW_S)


def numbers(n, function=None):
    ds = gristmill.MapDataset.range(n).to_iter_dataset()
    return ds if function is None else ds.map(function)


class Legacy:
    """A user's iterator whose state is a single dict that it modifies."""

    def __init__(self, n):
        self.n = n
        self.state = {"at": 0, "seen": []}

    def __iter__(self):
        return self

    def __next__(self):
        if self.state["at"] == self.n:
            raise StopIteration
        self.state["at"] += 1
        self.state["seen"].append(self.state["at"])
        return self.state["at"]

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = {"at": state["at"], "seen": list(state["seen"])}


@pytest.mark.parametrize("size", [0, 1, 3, 500])
def test_prefetching_matches_grain(size):
    def make(lib):
        ds = lib.MapDataset.range(9).to_iter_dataset().filter(lambda x: x % 4 < 2)
        return lib.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=size)

    assert_twins(make)


@pytest.mark.parametrize("limit_s", [ALL_SLOW_S, ALL_FAST_S], ids=["slow", "fast"])
def test_long_streams_keep_order_with_and_without_thread(monkeypatch, limit_s):
    monkeypatch.setattr(thread_prefetch, "FAST_ELEMENT_S", limit_s)
    count = 300
    ds = ThreadPrefetchIterDataset(numbers(count), prefetch_buffer_size=4)
    iterator = iter(ds)
    for i in range(count):
        assert iterator.get_state() == {"next_index": i}
        assert next(iterator) == i
    assert next(iterator, None) is None


@pytest.mark.usefixtures("slow")
def test_slow_elements_are_computed_by_a_thread():
    threads = []

    def note(x):
        threads.append(threading.current_thread())
        return x

    assert list(ThreadPrefetchIterDataset(numbers(99, note), prefetch_buffer_size=2))
    assert threading.main_thread() not in threads


def test_elements_turning_slow_return_to_the_thread():
    threads = []

    def note(x):
        threads.append(threading.current_thread())
        iterator._probe.slow_s = ALL_SLOW_S if x > 300 else ALL_FAST_S
        return x

    ds = ThreadPrefetchIterDataset(numbers(600, note), prefetch_buffer_size=2)
    iterator = iter(ds)
    assert list(iterator) == list(range(600))
    assert threading.main_thread() in threads[100:300]
    assert threading.main_thread() is not threads[-1]


def test_buffer_size_limits_elements_ahead():
    computed = []
    all_there = threading.Event()

    def note(x):
        computed.append(x)
        if len(computed) == 4:
            all_there.set()
        return x

    iterator = iter(
        ThreadPrefetchIterDataset(numbers(99, note), prefetch_buffer_size=3)
    )
    assert next(iterator) == 0
    assert all_there.wait(10)
    iterator.close()
    assert computed == [0, 1, 2, 3]


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
@pytest.mark.parametrize("size", [0, 2])
def test_user_iterators_need_no_base_class(library, size):
    make = library().experimental.ThreadPrefetchDatasetIterator
    iterator = make(Legacy(5), size)
    assert [next(iterator) for _ in range(3)] == [1, 2, 3]
    state = iterator.get_state()
    assert state == {"at": 3, "seen": [1, 2, 3]}
    resumed = make(Legacy(5), size)
    resumed.set_state(state)
    assert list(resumed) == list(iterator) == [4, 5]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_error_keeps_its_place(size):
    def fail(x):
        if x in (2, 3, 40):
            raise RuntimeError(x)
        return x

    ds = ThreadPrefetchIterDataset(numbers(50, fail), prefetch_buffer_size=size)
    iterator = iter(ds)
    found = []
    for i in range(50):
        try:
            found.append(next(iterator))
        except RuntimeError as error:
            found.append(error.args[0])
        assert iterator.get_state() == {"next_index": i + 1}
    assert found == list(range(50))


def test_next_index_can_be_read_and_set():
    iterator = iter(ThreadPrefetchIterDataset(numbers(9), prefetch_buffer_size=2))
    next(iterator)
    assert get_next_index(iterator) == 1
    set_next_index(iterator, 4)
    assert iterator.get_state() == {"next_index": 4}
    assert (next(iterator), get_next_index(iterator)) == (4, 5)
    iterator.set_state({"next_index": 7})
    assert get_next_index(iterator) == 7
    assert list(iterator) == [7, 8]
    with pytest.raises(ValueError, match="iterates over a Legacy"):
        set_next_index(ThreadPrefetchDatasetIterator(Legacy(3), 1), 1)


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_buffer_size_must_not_be_negative(library):
    ds = library().MapDataset.range(3).to_iter_dataset()
    with pytest.raises(ValueError, match="greater than or equal to 0, got -1"):
        library().experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=-1)


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_closed_iterator_raises(library):
    ds = library().MapDataset.range(3).to_iter_dataset()
    ds = library().experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=1)
    iterator = iter(ds)
    next(iterator)
    iterator.close()
    iterator.close()
    with pytest.raises(ValueError, match=r"Attempting to use a closed iterator."):
        next(iterator)


def test_dropped_iterator_ends_its_thread():
    before = set(threading.enumerate())
    gc.disable()
    try:
        iterator = iter(
            ThreadPrefetchIterDataset(numbers(9, abs), prefetch_buffer_size=2)
        )
        next(iterator)
        (thread,) = started_since(before)
        del iterator
        wait_until_ended([thread])
    finally:
        gc.enable()


@pytest.mark.multiprocess
def test_gc_during_thread_listing_does_not_deadlock():
    assert run("thread_prefetch/dropped_by_a_collection") == "0\ndropped\n"


def test_thread_ends_with_the_elements():
    before = set(threading.enumerate())
    iterator = iter(ThreadPrefetchIterDataset(numbers(5, abs), prefetch_buffer_size=2))
    assert list(iterator) == [0, 1, 2, 3, 4]
    assert not started_since(before)


@pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)
def test_fork_continues_at_position_of_parent():
    iterator = iter(ThreadPrefetchIterDataset(numbers(9, abs), prefetch_buffer_size=2))
    assert next(iterator) == 0
    child = os.fork()
    if child == 0:
        os._exit(0 if list(iterator) == list(range(1, 9)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(iterator) == list(range(1, 9))


@pytest.mark.multiprocess
def test_interpreter_exit_is_silent():
    done = subprocess.run(
        command("thread_prefetch/end_of_the_interpreter"),
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_names():
    ds = ThreadPrefetchIterDataset(numbers(3), prefetch_buffer_size=2)
    assert f"{ds}" == "ThreadPrefetchIterDataset(prefetch_buffer_size=2)"
    assert str(iter(ds)) == "ThreadPrefetchDatasetIterator(prefetch_buffer_size=2)"


def test_next_index_of_user_iterator_is_rejected():
    texts = []
    for lib in (gristmill, grain()):
        iterator = lib.experimental.ThreadPrefetchDatasetIterator(Legacy(3), 2)
        next(iterator)
        iterator.set_state(iterator.get_state())
        for call in (
            lib.experimental.get_next_index,
            lambda it, lib=lib: lib.experimental.set_next_index(it, 1),
        ):
            with pytest.raises(ValueError) as raised:
                call(iterator)
            texts.append(str(raised.value))
    iterates = " ThreadPrefetchDatasetIterator(prefetch_buffer_size=2) iterates over a"
    assert texts[:2] == [f"{text}{iterates} Legacy." for text in texts[2:]]
