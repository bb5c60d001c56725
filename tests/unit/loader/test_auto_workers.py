"""Tests that "auto" workers change nothing but their number."""

import contextlib
import itertools
import json
import multiprocessing
import os
import pickle

import numpy as np
import psutil
import pytest

import gristmill
from gristmill._base.publication import read_facts
from gristmill._engine import auto_run
from gristmill._engine.auto_workers import Decision

pytestmark = pytest.mark.multiprocess
RECORDS = 300


class Draw(gristmill.RandomMapTransform):
    def random_map(self, number, rng):
        return np.array([number, rng.integers(1 << 30)])


class Keep(gristmill.FilterTransform):
    def filter(self, element):
        return element[0] % 5 != 0


class Restless:
    """Decides for another number after each of the first measurements."""

    def __init__(self):
        self._counts = itertools.chain([3, 1], itertools.repeat(4))

    def decide(self, found, limits):
        assert found.outputs >= 1
        return Decision(next(self._counts), "restless")


@pytest.fixture
def restless(monkeypatch):
    monkeypatch.setattr(auto_run, "WorkerPlan", Restless)
    # A measurement takes 5 outputs of each worker.
    values = {"MEASURE_NS": 0, "POLL_NS": 0, "MAX_MEASURE_NS": 1 << 60, "ROUNDS": 5}
    for name, value in values.items():
        monkeypatch.setattr(auto_run, name, value)


def loader(*operations, **options):
    sampler = gristmill.IndexSampler(RECORDS, shuffle=True, num_epochs=1, seed=5)
    return gristmill.DataLoader(
        data_source=range(RECORDS),
        sampler=sampler,
        operations=[Draw(), *operations, gristmill.Batch(5)],
        **options,
    )


def chain(count, filters, **options):
    ds = gristmill.MapDataset.range(RECORDS).shuffle(seed=1).seed(2)
    ds = ds.random_map(lambda number, rng: np.array([number, rng.integers(1 << 30)]))
    ds = ds.to_iter_dataset()
    if filters:
        ds = ds.filter(lambda element: element[0] % 5 != 0)
    processes = gristmill.MultiprocessingOptions(num_workers=count)
    ds = ds.batch(5).mp_prefetch(processes, **options)
    return ds.map(lambda batch: batch + 1)


# Pipelines with "auto" workers, and the same ones with a fixed number.
PAIRS = {
    "loader": (lambda: loader(worker_count="auto"), lambda: loader(worker_count=1)),
    "loader, streams": (
        lambda: loader(worker_count="auto", streams=3),
        lambda: loader(worker_count=3),
    ),
    "loader, filter": (
        lambda: loader(Keep(), worker_count="auto"),
        lambda: loader(Keep(), worker_count=8),
    ),
    "chain": (lambda: chain("auto", False), lambda: chain(1, False)),
    "chain, filter": (lambda: chain("auto", True), lambda: chain(8, True)),
}


def run_of(iterator):
    """Return the `AutoRun` of an iterator over a loader or a chain."""
    while not hasattr(iterator, "_run"):
        (iterator,) = iterator._parents
    return iterator._run


def advance(iterator):
    """Return the next output, after the workers that are starting have started."""
    run = run_of(iterator)
    while (successor := run and run._successor) and not successor.workers.ready():
        pass
    return next(iterator)


def kill_workers(run):
    """Kill the present workers, and those that will replace them."""
    for scheduled in (run._running, run._successor):
        for pid, is_alive, _ in scheduled.scheduler.processes() if scheduled else ():
            if pid and is_alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()


@pytest.mark.parametrize("name", PAIRS)
def test_outputs_and_states_are_those_of_fixed_number(name, restless):
    make, make_fixed = PAIRS[name]
    found, expected = iter(make()), iter(make_fixed())
    for number, element in enumerate(expected):
        np.testing.assert_array_equal(advance(found), element)
        if number % 10 == 0:
            assert found.get_state() == expected.get_state()
        if "filter" in name and number in (5, 15, 30):
            kill_workers(run_of(found))
    assert next(found, None) is None
    assert run_of(found)._auto.history[:2] == [1, 3]


@pytest.mark.parametrize("name", ["loader, streams", "loader, filter"])
def test_state_resumes_with_any_number(name, restless):
    make, make_fixed = PAIRS[name]
    iterator, fixed = iter(make()), iter(make_fixed())
    for _ in range(20):
        advance(iterator)
    state = iterator.get_state()
    expected = [advance(iterator) for _ in range(10)]
    for other in (iterator, iter(make()), fixed):
        other.set_state(state)
        np.testing.assert_array_equal([next(other) for _ in range(10)], expected)


def test_number_changes_and_reason_is_reported(restless):
    iterator = iter(loader(worker_count="auto"))
    for _ in range(45):
        advance(iterator)
    text = 'workers ("auto"): 1, 3, 1, 4; restless'
    assert text in iterator.report().notes
    assert read_facts(os.getpid(), "auto_workers")[-1] == {"workers": 4, "text": text}


def test_next_iterator_starts_with_last_number(restless):
    repeated = loader(worker_count="auto")
    first = iter(repeated)
    for _ in range(20):
        advance(first)
    assert iter(repeated)._run._auto.history == [3]


def test_close_during_change_ends_all_workers(restless):
    iterator = iter(loader(worker_count="auto"))
    while iterator._run._successor is None:
        next(iterator)
    running = iterator._run
    schedulers = [running._running.scheduler, running._successor.scheduler]
    state = iterator.get_state()
    expected = next(iterator)
    iterator.close()
    pids = [pid for each in schedulers for pid, _, _ in each.processes() if pid]
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert psutil.wait_procs(processes, timeout=20)[1] == []
    iterator.set_state(state)
    np.testing.assert_array_equal(next(iterator), expected)


def test_set_workers_ends_auto(restless):
    iterator = iter(loader(worker_count="auto"))
    next(iterator)
    iterator.set_workers(2)
    history = [*iterator._run._auto.history]
    for _ in range(40):
        next(iterator)
    assert iterator._run._auto.history == history
    assert "set_workers(2) was called" in iterator.report().notes[-1]


def test_failure_to_start_keeps_present_workers(restless, monkeypatch, caplog):
    iterator = iter(loader(worker_count="auto"))
    next(iterator)

    def fail(count):
        raise OSError("no more processes")

    monkeypatch.setattr(iterator._run, "resize", fail)
    assert len([*iterator]) == RECORDS // 5 - 1
    assert "no more processes" in caplog.text
    assert "could not start" in str(iterator._run._auto)


def test_iteration_in_forked_and_spawned_process(restless):
    expected = [batch.tolist() for batch in loader(worker_count=1)]
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=send_batches, args=(sender,))
        process.start()
        sender.close()
        assert receiver.recv() == expected
        process.join()


def send_batches(sender):
    sender.send([batch.tolist() for batch in loader(worker_count="auto")])


def test_pickled_loader_keeps_auto():
    copy = pickle.loads(pickle.dumps(loader(worker_count="auto")))
    assert copy.multiprocessing_options.num_workers == "auto"
    assert json.loads(iter(copy).get_state())["worker_count"] == 1


@pytest.mark.parametrize(
    ("count", "error", "message"),
    [
        ("fast", TypeError, r'must be an int, got str\. Pass .*"auto"'),
        (1.5, TypeError, "must be an int, got float"),
        (b"auto", TypeError, "must be an int, got bytes"),
    ],
)
def test_other_counts_are_refused(count, error, message):
    with pytest.raises(error, match=message):
        loader(worker_count=count)
    with pytest.raises(error, match=message):
        gristmill.MultiprocessingOptions(num_workers=count)


class Actors:
    def workers(self):
        pass


def test_auto_with_actors_is_refused():
    with pytest.raises(ValueError, match='worker_count="auto" needs worker processes'):
        loader(worker_count="auto", workers=Actors())
    for streams in (None, 4):
        with pytest.raises(ValueError, match='num_workers="auto" needs worker process'):
            chain("auto", False, workers=Actors(), streams=streams)
