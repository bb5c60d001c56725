"""Tests that set_workers() on a running iterator does not change its elements."""

import contextlib

import numpy as np
import psutil
import pytest

import gristmill

pytestmark = pytest.mark.multiprocess
RECORDS = 3000


class Draw(gristmill.RandomMapTransform):
    def random_map(self, number, rng):
        return np.array([number, rng.integers(1 << 30)])


class Keep(gristmill.FilterTransform):
    def filter(self, element):
        return element[0] % 5 != 0


def loader(operations, num_epochs=1, **options):
    sampler = gristmill.IndexSampler(
        RECORDS, shuffle=True, num_epochs=num_epochs, seed=5
    )
    return gristmill.DataLoader(
        data_source=range(RECORDS),
        sampler=sampler,
        operations=operations,
        streams=3,
        **options,
    )


def chain(**options):
    ds = gristmill.MapDataset.range(RECORDS).shuffle(seed=1).seed(2)
    ds = ds.random_map(lambda number, rng: np.array([number, rng.integers(1 << 30)]))
    ds = ds.to_iter_dataset().filter(lambda element: element[0] % 5 != 0)
    processes = gristmill.MultiprocessingOptions(num_workers=1)
    ds = ds.mp_prefetch(processes, streams=3, **options).batch(10)
    return ds.map(lambda batch: batch + 1)


MAKES = {
    "loader": lambda: loader([Draw(), gristmill.Batch(10)], worker_count=1),
    "loader, owned streams": lambda: loader(
        [Draw(), Keep(), gristmill.Batch(10)], worker_count=1
    ),
    "chain": chain,
}


def workers():
    """Return the descendants of this process that have no children."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            zombie = process.status() == psutil.STATUS_ZOMBIE
            if not zombie and not process.children():
                found.append(process)
    return found


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_elements_and_states_do_not_change(make, kill):
    expected, found = iter(make()), iter(make())
    for number, element in enumerate(expected):
        if number in (40, 120):
            found.set_workers(4 if number == 40 else 2)
        if kill and number % 30 == 15:
            with contextlib.suppress(IndexError, psutil.NoSuchProcess):
                workers()[-1].kill()
        np.testing.assert_array_equal(next(found), element)
        if number % 25 == 0:
            assert found.get_state() == expected.get_state()
    assert next(found, None) is None


def test_state_from_before_change_restores_after_it():
    iterator = iter(loader([Draw(), gristmill.Batch(10)], worker_count=2))
    for _ in range(10):
        next(iterator)
    state = iterator.get_state()
    expected = [next(iterator).tolist() for _ in range(5)]
    iterator.set_workers(1)
    iterator.set_state(state)
    assert [next(iterator).tolist() for _ in range(5)] == expected


def test_call_before_first_element_sets_initial_workers():
    iterator = iter(loader([Draw(), gristmill.Batch(10)], worker_count=1))
    iterator.set_workers(3)
    next(iterator)
    scheduler = iterator._run._running.scheduler
    assert len(scheduler.processes()) == 3


def test_call_during_first_start_takes_effect(monkeypatch):
    endless = loader([Draw(), gristmill.Batch(10)], num_epochs=None, worker_count=1)
    iterator = iter(endless)
    run = iterator._run
    start_workers = run._start_workers

    def start_and_resize(position, before):
        started = start_workers(position, before)
        if before is None:
            run.set_workers(3)  # Another thread may call this now.
        return started

    monkeypatch.setattr(run, "_start_workers", start_and_resize)
    next(iterator)
    while run._successor is not None:
        next(iterator)
    assert len(run._running.scheduler.processes()) == 3


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)]
)
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_invalid_count_is_refused(make, count, error):
    with pytest.raises(error, match=r"count|worker"):
        iter(make()).set_workers(count)


def test_error_without_workers_names_parameter():
    with pytest.raises(ValueError, match="worker_count=0"):
        iter(loader([Draw()])).set_workers(2)
    with pytest.raises(ValueError, match="mp_prefetch"):
        iter(gristmill.MapDataset.range(5).to_iter_dataset()).set_workers(2)


def test_old_worker_processes_exit():
    endless = loader([Draw(), gristmill.Batch(10)], num_epochs=None, worker_count=3)
    iterator = iter(endless)
    next(iterator)
    processes = iterator._run._running.scheduler.processes()
    before = [psutil.Process(pid) for pid, _, _ in processes if pid]
    iterator.set_workers(1)
    while iterator._run._successor is not None:
        next(iterator)
    assert before
    _, alive = psutil.wait_procs(before, timeout=20)
    assert not alive
