"""How many threads compute in a process."""

import os

import gristmill
from gristmill._base.threads import threads_to_compute


def test_as_many_threads_compute_as_are_wanted_and_there_are_cores_for(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 5})
    assert [threads_to_compute(wanted) for wanted in (0, 1, 2, 16)] == [1, 1, 2, 3]
    assert threads_to_compute() == 3


def test_a_worker_computes_by_one_thread():
    dataset = gristmill.MapDataset.range(3).map(lambda _: threads_to_compute(16))
    options = gristmill.MultiprocessingOptions(num_workers=2)
    assert list(dataset.to_iter_dataset().mp_prefetch(options)) == [1, 1, 1]
