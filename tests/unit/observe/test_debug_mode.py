"""Tests of debug mode, which measures every node and logs a table."""

import logging
import threading
import time
import types

import numpy as np
import pytest

import gristmill as grain
from gristmill import experimental
from gristmill._base import quantities
from gristmill._dataset.nodes import to_iter
from gristmill._engine import reading
from gristmill._observe import measured, measured_copy, meter, observed, summary
from support.waiting import wait_for, wait_until_ended

COLUMNS = [
    "id",
    "name",
    "inputs",
    "percent wait time",
    "total processing time",
    "min processing time",
    "max processing time",
    "avg processing time",
    "num produced elements",
    "memory usage",
]
NO_THREADS = grain.ReadOptions(num_threads=0)


def work(seconds):
    """Compute for this much CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def slow(x):
    work(2e-3)
    return x


def nodes_of(iterator):
    return summary.summarize(iterator.measurement)


def node_of(iterator, name):
    (found,) = [node for node in nodes_of(iterator) if node.name.startswith(name)]
    return found


def observe(dataset):
    return observed.ObservedDatasetIterator(dataset)


@pytest.fixture
def debug_mode():
    grain.config.update("py_debug_mode", True)
    yield
    grain.config.update("py_debug_mode", False)


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "gristmill")
    return caplog


def debug_threads():
    return [t for t in threading.enumerate() if t.name == "gristmill-debug"]


def chain():
    ds = grain.MapDataset.range(100).shuffle(3).map(slow).filter(lambda x: x % 2 == 0)
    return ds.to_iter_dataset(NO_THREADS).map(lambda x: x + 1).batch(5)


def test_elements_and_states_match_unmeasured_chain():
    plain, seen = iter(chain()), observe(chain())
    for _ in range(6):
        np.testing.assert_array_equal(next(seen), next(plain))
        assert seen.get_state() == plain.get_state()
    state = plain.get_state()
    expected = [batch.tolist() for batch in plain]
    assert [batch.tolist() for batch in seen] == expected
    seen.set_state(state)
    assert [batch.tolist() for batch in seen] == expected


def test_nodes_are_counted_and_linked():
    iterator = observe(chain())
    assert len(list(iterator)) == 10
    nodes = nodes_of(iterator)
    assert [node.name.split("(")[0] for node in nodes] == [
        "BatchDatasetIterator",
        "MapDatasetIterator",
        "PrefetchDatasetIterator",
        "FilterMapDataset",
        "MapMapDataset",
        "ShuffleMapDataset",
        "RangeMapDataset",
    ]
    assert [node.inputs for node in nodes] == [[1], [2], [3], [4], [5], [6], []]
    counts = [node.numbers.elements for node in nodes]
    assert counts == [10, 50, 50, 100, 100, 100, 100]


class Clock:
    """Replaces the module `time`: a nanosecond passes at each call."""

    def __init__(self):
        self.now_ns = 0

    def perf_counter_ns(self):
        self.now_ns += 1
        return self.now_ns

    thread_time_ns = perf_counter_ns


def test_node_time_excludes_other_nodes(monkeypatch):
    clock = Clock()
    for module in (meter, measured, to_iter):
        monkeypatch.setattr(module, "time", clock)
    # The cost of measuring, by the real clock, would be subtracted otherwise.
    monkeypatch.setattr(measured_copy, "measure_costs", meter.Costs)

    def slow(x):
        clock.now_ns += 2_000_000
        return x

    ds = grain.MapDataset.range(100).map(slow).filter(lambda x: x % 2 == 0)
    iterator = observe(ds.to_iter_dataset(NO_THREADS).batch(5))
    list(iterator)
    slow_node = node_of(iterator, "MapMapDataset")
    assert 2e8 <= slow_node.numbers.total_ns < 2.01e8
    assert slow_node.numbers.min_ns >= 2e6
    assert slow_node.wait_ratio > 0.99
    others = [node for node in nodes_of(iterator) if node != slow_node]
    assert sum(node.wait_ratio or 0 for node in others) < 0.01


@pytest.mark.multiprocess
@pytest.mark.claim(
    "The table of debug mode includes the CPU time of other programs and the "
    "start of workers"
)
def test_time_excludes_other_programs_and_worker_start(monkeypatch):
    ahead = 0

    def lose_the_processor(x):
        nonlocal ahead
        ahead += 10**9
        return x

    clock = types.SimpleNamespace(
        perf_counter_ns=lambda: time.perf_counter_ns() + ahead,
        thread_time_ns=time.thread_time_ns,
    )
    monkeypatch.setattr(meter, "time", clock)
    iterator = observe(
        grain.MapDataset.range(20).map(lose_the_processor).to_iter_dataset(NO_THREADS)
    )
    assert len(list(iterator)) == 20
    assert ahead == 20 * 10**9
    # Calls in which the thread waited for another thread of this process count in full.
    assert sum(node.numbers.total_ns for node in nodes_of(iterator)) < ahead / 2
    monkeypatch.undo()
    ds = grain.MapDataset.range(2).to_iter_dataset()
    ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=1))
    iterator = observe(ds)
    next(iterator)
    assert node_of(iterator, "ProcessPrefetch").numbers.total_ns == 0


def test_thread_wait_is_attributed_to_nodes_in_threads(monkeypatch):
    monkeypatch.setattr(reading, "SLOW_READ_S", -1.0)
    ds = grain.MapDataset.range(60).map(slow).to_iter_dataset().batch(5)
    iterator = observe(ds)
    list(iterator)
    assert node_of(iterator, "PrefetchDatasetIterator").wait_ratio is None
    assert node_of(iterator, "MapMapDataset").wait_ratio > 0.8
    assert node_of(iterator, "MapMapDataset").numbers.elements == 60


def test_workers_report_their_measurements():
    def slower(x):
        work(10e-3)
        return x

    ds = grain.MapDataset.range(60).map(slower).to_iter_dataset(NO_THREADS).batch(2)
    ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)).map(lambda x: x)
    iterator = observe(ds)
    assert sum(len(batch) for batch in iterator) == 60
    node = node_of(iterator, "MapMapDataset")
    # Workers report every 50 ms, so the last 50 ms of each are missing.
    assert 0 < node.numbers.elements <= 60
    assert node.numbers.total_ns >= node.numbers.elements * 9.5e6
    assert node.wait_ratio > 0.8
    assert node_of(iterator, "ProcessPrefetchDatasetIterator").wait_ratio is None
    assert node_of(iterator, "ProcessPrefetch").numbers.elements == 30
    assert len(iterator.measurement.workers) == 2


def test_streams_without_workers_are_counted_once():
    ds = grain.MapDataset.range(60).map(slow).to_iter_dataset(NO_THREADS)
    ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=0), streams=2)
    iterator = observe(ds)
    assert len(list(iterator)) == 60
    assert node_of(iterator, "MapMapDataset").numbers.elements == 60


def test_both_branches_of_a_mixture_are_measured():
    parts = [grain.MapDataset.range(50), grain.MapDataset.range(50).map(slow)]
    iterator = observe(grain.MapDataset.mix(parts).to_iter_dataset(NO_THREADS))
    list(iterator)
    nodes = nodes_of(iterator)
    assert nodes[1].inputs == [2, 3]
    assert [nodes[i].numbers.elements for i in (2, 3, 4)] == [50, 50, 50]


def test_parent_calls_are_counted_if_few_are_long():
    """Only one in 500 calls of the prefetch node reads a block."""

    def batch_slowly(elements):
        work(10e-3)
        return len(elements)

    ds = (
        grain.MapDataset.range(5000).to_iter_dataset().batch(250, batch_fn=batch_slowly)
    )
    iterator = observe(ds)
    list(iterator)
    assert node_of(iterator, "PrefetchDatasetIterator").numbers.elements == 5000
    batches = node_of(iterator, "BatchDatasetIterator").numbers
    assert batches.elements == 20
    assert batches.total_ns > 20 * 9e6


def test_user_defined_nodes_are_measured():
    class Doubled(grain.MapDataset):
        def __len__(self):
            return len(self._parent)

        def __getitem__(self, index):
            if isinstance(index, slice):
                return self.slice(index)
            return slow(2 * self._parent[index])

    class Thirds(grain.IterDataset):
        def __iter__(self):
            return ThirdsIterator(iter(self._parent))

    class ThirdsIterator(grain.DatasetIterator):
        def __next__(self):
            return [next(self._parent) for _ in range(3)]

        def get_state(self):
            return self._parent.get_state()

        def set_state(self, state):
            self._parent.set_state(state)

    ds = Thirds(Doubled(grain.MapDataset.range(30)).to_iter_dataset(NO_THREADS))
    iterator = observe(ds)
    assert next(iterator) == [0, 2, 4]
    list(iterator)
    assert node_of(iterator, "Doubled").wait_ratio > 0.8
    assert node_of(iterator, "RangeMapDataset").numbers.elements == 30


def test_seeds_and_options_are_not_measured_as_nodes():
    options = experimental.DatasetOptions(
        execution_tracking_mode=experimental.ExecutionTrackingMode.STAGE_TIMING
    )
    ds = grain.MapDataset.range(30).to_iter_dataset(NO_THREADS).seed(4)
    ds = ds.random_map(lambda x, rng: x + rng.integers(5))
    iterator = iter(ds.pipe(experimental.WithOptionsIterDataset, options))
    assert isinstance(iterator, observed.ObservedDatasetIterator)
    taken = list(iterator)
    assert taken == list(ds)
    names = [node.name.split("(")[0] for node in nodes_of(iterator)]
    assert names == [
        "RandomMapDatasetIterator",
        "PrefetchDatasetIterator",
        "RangeMapDataset",
    ]
    assert sum(node.wait_ratio for node in nodes_of(iterator)) == pytest.approx(1)


def test_table_has_grain_columns():
    iterator = observe(chain())
    list(iterator)
    lines = summary.table(nodes_of(iterator)).split("\n")
    assert [cell.strip() for cell in lines[1].strip("|").split("|")] == COLUMNS
    assert set(lines[0]) == {"|", "-"}
    assert len({len(line) for line in lines if line}) == 1
    first = [cell.strip() for cell in lines[3].strip("|").split("|")]
    assert (first[0], first[2], first[8]) == ("4", "[5]", "100")
    assert first[3].endswith("%") and first[4].endswith("ms")


@pytest.mark.parametrize(
    ("ns", "text"),
    [(999, "999ns"), (1500, "1.50us"), (2_000_000, "2.00ms"), (61e9, "61.00s")],
)
def test_time_text_matches_grain(ns, text):
    assert quantities.time_text(ns) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1023, "1023 bytes"),
        (1536, "1.50 KiB"),
        (3 << 20, "3.00 MiB"),
        (2**40, "1.00 TiB"),
    ],
)
def test_size_text_matches_grain(count, text):
    assert quantities.bytes_text(count) == text


def test_debug_mode_logs_table_during_iteration(debug_mode, log, monkeypatch):
    monkeypatch.setattr(observed, "LOG_INTERVAL_S", 0.02)
    iterator = iter(chain())
    list(iterator)
    wait_for(lambda: log.messages)
    assert log.messages[0].startswith("Grain Dataset Execution Summary:\n\nNOTE: ")
    assert "percent wait time" in log.messages[0]
    iterator.close()


@pytest.mark.parametrize("how", ["close", "collect"])
def test_logging_thread_ends_with_iterator(debug_mode, how):
    before = set(debug_threads())
    iterator = iter(chain())
    assert set(debug_threads()) <= before
    next(iterator)
    (thread,) = set(debug_threads()) - before
    if how == "close":
        iterator.close()
    del iterator
    wait_until_ended([thread])


def test_logging_thread_ends_when_iterator_is_idle(debug_mode, monkeypatch):
    monkeypatch.setattr(observed, "LOG_INTERVAL_S", 0.01)
    monkeypatch.setattr(observed, "IDLE_S", 0.05)
    iterator = iter(chain())
    next(iterator)
    wait_until_ended(debug_threads())
    assert next(iterator) is not None


def test_without_debug_mode_nothing_is_measured():
    iterator = iter(chain())
    assert type(iterator._parent).__name__ == "MapDatasetIterator"
    assert not isinstance(iterator, observed.ObservedDatasetIterator)
