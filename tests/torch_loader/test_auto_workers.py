"""Tests that "auto" workers of a torch loader change nothing but their number."""

import contextlib
import itertools
import json
import random

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from gristmill._engine import auto_run
from gristmill._engine.auto_workers import Decision
from gristmill.torch import DataLoader, StatefulDataLoader

BATCHES = 40


class Draws(Dataset):
    """Draws from all global generators."""

    def __len__(self):
        return 2 * BATCHES

    def __getitem__(self, index):
        drawn = [random.random(), np.random.rand(), torch.rand(1).item()]  # noqa: NPY002
        return torch.tensor([index, *drawn], dtype=torch.float64)


class Counting(Draws):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Endless(IterableDataset):
    def __iter__(self):
        yield from itertools.count()


class Plan:
    """Decides for given numbers, then for the last one of them."""

    counts = (1,)

    def __init__(self):
        self._counts = iter(self.counts)
        self._last = 1

    def decide(self, found, limits):
        self._last = next(self._counts, self._last)
        return Decision(self._last, "planned")


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.setattr(auto_run, "WorkerPlan", Plan)
    # A measurement takes 3 batches of each worker.
    values = {"MEASURE_NS": 0, "POLL_NS": 0, "MAX_MEASURE_NS": 1 << 60, "ROUNDS": 3}
    for name, value in values.items():
        monkeypatch.setattr(auto_run, name, value)

    def set_counts(*counts):
        monkeypatch.setattr(Plan, "counts", counts)

    return set_counts


def make(kind=DataLoader, dataset=None, **options):
    generator = torch.Generator().manual_seed(3)
    options = {"num_workers": "auto", "generator": generator, **options}
    return kind(dataset or Draws(), batch_size=2, shuffle=True, **options)


def advance(iterator):
    """Return the next batch, after the workers that are starting have started."""
    pool = iterator._pool
    while pool.successor and not pool._receive_first_answers(pool.successor):
        pass
    return next(iterator)


def batches_of(loader):
    iterator = iter(loader)
    for _ in range(BATCHES):
        yield advance(iterator).tolist()
    assert next(iterator, None) is None


def test_draws_do_not_depend_on_number(plan):
    plan(1)
    expected = [*batches_of(make())]
    plan(3, 1, 2)
    loader = make()
    assert [*batches_of(loader)] == expected
    assert loader._chosen.count == 2
    assert [*batches_of(loader)] != expected  # Another order and other draws.


def test_order_is_that_of_fixed_number(plan):
    plan(3, 1)
    indices = [[row[0] for row in batch] for batch in batches_of(make())]
    fixed = [batch[:, 0].tolist() for batch in make(num_workers=2)]
    assert indices == fixed


def test_batches_do_not_change_under_kills(plan):
    plan(1)
    expected = [*batches_of(make())]
    plan(3, 1, 2)
    iterator = iter(make(max_restarts=9))
    for number in range(BATCHES):
        assert advance(iterator).tolist() == expected[number]
        if number % 9 == 5:
            process = iterator._workers[number % len(iterator._workers)]
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(process.pid).kill()


@pytest.mark.parametrize("overlaps", [False, True])
def test_persistent_workers_draw_the_same(overlaps, plan):
    plan(1)
    options = {"persistent_workers": True, "overlap_epochs": overlaps}
    expected, found = make(**options), make(**options)
    expected_epochs = [[*batches_of(expected)] for _ in range(2)]
    plan(3, 2, 1)
    assert [[*batches_of(found)] for _ in range(2)] == expected_epochs


def test_state_resumes_with_other_number(plan):
    plan(1)
    torch.manual_seed(1)  # States contain the seed of the workers.
    loader = make(StatefulDataLoader)
    iterator = iter(loader)
    expected, states = [], []
    for _ in range(BATCHES):
        states.append(loader.state_dict())
        expected.append(next(iterator).tolist())
    states.append(loader.state_dict())
    plan(3, 1)
    torch.manual_seed(1)
    found = make(StatefulDataLoader)
    iterator = iter(found)
    for number in range(BATCHES):
        assert str(found.state_dict()) == str(states[number])
        assert advance(iterator).tolist() == expected[number]
    found.load_state_dict(states[17])
    assert [batch.tolist() for batch in found] == expected[17:]


def test_report_names_decision(plan):
    plan(2)
    iterator = iter(make())
    for _ in range(10):
        advance(iterator)
    assert 'workers ("auto"): 1, 2; planned' in iterator.report().notes
    iterator.set_workers(1)
    assert "set_workers(1) was called" in iterator.report().notes[-1]


def test_worker_info_is_that_of_running_workers(plan):
    class Whose(Draws):
        def __getitem__(self, index):
            return get_worker_info().num_workers

    plan(3)
    iterator = iter(make(dataset=Whose(), multiprocessing_context="fork"))
    counts = [advance(iterator)[0].item() for _ in range(BATCHES)]
    assert counts == sorted(counts)
    assert {*counts} == {1, 3}


def test_close_during_change_ends_all_workers(plan):
    plan(3)
    iterator = iter(make())
    while iterator._pool.successor is None:
        next(iterator)
    pool = iterator._pool
    both = [*pool.processes, *pool.successor.processes]
    pids = [process.pid for process in both if process.pid]
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    del iterator, pool, both
    assert psutil.wait_procs(processes, timeout=20)[1] == []


def test_copied_loader_is_auto():
    loader = make()
    copy = make(num_workers=loader.num_workers)
    assert copy._chosen is not None
    assert copy._chosen is not loader._chosen
    assert json.dumps(loader.num_workers) == "1"
    assert "num_workers='auto'" in repr(loader)


def test_unsupported_options_are_refused():
    with pytest.raises(TypeError, match=r'num_workers must be an int, got str.*"auto"'):
        make(num_workers="fast")
    with pytest.raises(ValueError, match="needs in_order=True"):
        make(in_order=False)


def test_datasets_that_depend_on_workers_are_refused():
    with pytest.raises(ValueError, match="map-style dataset, got an IterableDataset"):
        DataLoader(Endless(), num_workers="auto")
    with pytest.raises(ValueError, match="dataset without a state"):
        iter(make(StatefulDataLoader, Counting()))
