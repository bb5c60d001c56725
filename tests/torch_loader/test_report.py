"""Tests that reports of torch loaders name the slowest stage, also in workers."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate

from gristmill._engine import stage_times
from gristmill.torch import DataLoader, StatefulDataLoader

SECONDS = 0.1


def work(rounds):
    """Compute for a time proportional to `rounds`."""
    return sum(range(rounds * 1000))


class Numbers(Dataset):
    def __init__(self, rounds=0, length=4000):
        self.rounds = rounds
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        work(self.rounds)
        random.random()
        return {"x": torch.full((8,), float(index))}


class Together(Numbers):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Counting(IterableDataset):
    def __iter__(self):
        return iter(range(1000))


def slow_collate(samples):
    work(200)
    return default_collate(samples)


def taken(loader, count):
    iterator = iter(loader)
    return iterator, [next(iterator) for _ in range(count)]


def slowest(report):
    return max(report.stages, key=lambda stage: stage.share)


@pytest.mark.parametrize(
    ("dataset", "collate_fn", "kind", "name", "workers"),
    [
        (Numbers(20), None, "read", "Numbers.__getitem__", 0),
        (Numbers(20), default_collate, "read", "Numbers.__getitem__", 2),
        (Together(20), default_collate, "read", "Together.__getitems__", 0),
        (Numbers(), slow_collate, "batch", "collate_fn slow_collate", 0),
        (Numbers(), slow_collate, "batch", "collate_fn slow_collate", 2),
    ],
)
def test_report_names_the_slowest_stage(
    dataset, collate_fn, kind, name, workers, monkeypatch
):
    # Measure each batch, so that a pause of the process is a small part of the times.
    monkeypatch.setattr(stage_times, "PAUSE_NS", 0)
    loader = DataLoader(dataset, 4, num_workers=workers, collate_fn=collate_fn)
    iterator, _ = taken(loader, 60)
    report = iterator.report()
    stage = slowest(report)
    assert (stage.kind, stage.name) == (kind, name), str(report)
    assert len(report.workers) == workers
    if not workers:  # Workers without CPU time look like slow transport.
        assert stage.share > 0.5
        assert (report.limit, report.stage) == (kind, name)


def test_report_names_iterable_dataset():
    iterator, _ = taken(DataLoader(Counting(), 4, num_workers=1), 12)
    report = iterator.report()
    assert {stage.name for stage in report.stages} >= {
        "Counting.__iter__",
        "collate_fn default_collate",
        "taking outputs from workers",
    }


def test_report_includes_workers_of_finished_epoch():
    loader = DataLoader(Numbers(10, 40), 4, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    assert len(list(iterator)) == 10
    assert sum(worker.elements for worker in iterator.report().workers) == 10


@pytest.mark.parametrize(
    ("kind", "workers"), [(DataLoader, 0), (DataLoader, 1), (StatefulDataLoader, 0)]
)
def test_verify_tries_one_more_worker_and_draws_nothing(kind, workers):
    def batches(verifies):
        torch.manual_seed(1)
        random.seed(2)
        np.random.seed(3)  # noqa: NPY002 (users draw from it)
        generator = torch.Generator().manual_seed(4)
        loader = kind(
            Numbers(20),
            4,
            shuffle=True,
            num_workers=workers,
            collate_fn=default_collate,
            generator=generator,
        )
        iterator, found = taken(loader, 8)
        if verifies:
            report = iterator.report(verify=True, seconds=SECONDS)
            checks = {check.text: check for check in report.checks}
            assert checks[f"one more worker ({workers + 1})"].found > 0
            # Without workers this depends on how long the consumer took.
            assert workers == 0 or "outputs from a cache" in checks
        found += [next(iterator) for _ in range(4)]
        drawn = [torch.rand(3).tolist(), random.random()]
        drawn.append(np.random.random())  # noqa: NPY002 (the same)
        again = next(iter(loader))["x"].tolist()
        return [batch["x"].tolist() for batch in found], drawn, again

    assert batches(True) == batches(False)


def test_verify_does_not_try_iterable_dataset():
    loader = DataLoader(Counting(), 4)
    iterator, _ = taken(loader, 8)
    report = iterator.report(verify=True, seconds=SECONDS)
    assert report.checks == ()
    assert report.notes[-1] == ("Not tried: an IterableDataset is consumed by reading.")
    with pytest.raises(ValueError, match="consumed by reading"):
        loader.report(SECONDS)


def test_verify_does_not_try_iterator_as_sampler():
    sampler = iter(range(4000))
    iterator, _ = taken(DataLoader(Numbers(), 4, sampler=sampler), 8)
    report = iterator.report(verify=True, seconds=SECONDS)
    assert report.checks == ()
    assert "consumed by drawing" in report.notes[-1]
    assert next(iterator)["x"][0, 0] == 32


def test_loader_report_measures_a_short_run():
    seen = []
    report = DataLoader(Numbers(10), 4).report(SECONDS, consume=seen.append)
    assert report.stage == "Numbers.__getitem__"
    # The first output is not counted, and the last one may not have been consumed.
    assert report.outputs <= len(seen) <= report.outputs + 1
