"""Tests that iterators in workers end when an epoch is abandoned, as in torch."""

import pytest
import torch

from faults.prepared import run
from gristmill.torch import DataLoader, StatefulDataLoader
from support.waiting import wait_for
from torch_loader.abandoning import OPTIONS, WAYS, Iterator, Stream, has_ended, iterate

pytestmark = pytest.mark.multiprocess

LOADERS = [torch.utils.data.DataLoader, DataLoader, StatefulDataLoader]


def assert_ends(loader_class, log, way, *, iterate=iterate, context="fork", **options):
    loader = loader_class(
        Stream(iterate, log),
        num_workers=1,
        multiprocessing_context=context,
        **options,
    )
    WAYS[way](loader)
    del loader
    wait_for(lambda: has_ended(log))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_abandoned_generator_ends_in_its_worker(way, options, tmp_path):
    for loader_class in LOADERS:
        log = tmp_path / f"{loader_class.__module__}.{loader_class.__name__}"
        assert_ends(loader_class, log, way, **OPTIONS[options])


@pytest.mark.parametrize("way", WAYS)
def test_abandoned_iterator_is_freed_in_its_worker(way, tmp_path):
    for loader_class in LOADERS:
        log = tmp_path / f"{loader_class.__module__}.{loader_class.__name__}"
        assert_ends(loader_class, log, way, iterate=Iterator, batch_size=4)


@pytest.mark.parametrize("way", WAYS)
def test_abandoned_generator_in_launcher_worker_ends(way, tmp_path):
    log = tmp_path / "log"
    assert_ends(DataLoader, log, way, context="launcher", batch_size=4)


def test_second_epoch_ends_generator_of_first(tmp_path):
    log = tmp_path / "log"
    loader = DataLoader(
        Stream(iterate, log), batch_size=4, num_workers=1, persistent_workers=True
    )
    next(iter(loader))
    next(iter(loader))
    assert log.read_text().split() == ["begun", "ended", "begun"]


@pytest.mark.parametrize("context", ["fork", "launcher"])
def test_exit_after_break_ends_generators(context, tmp_path):
    log = tmp_path / "log"
    run("torch_loader/abandoned/break_and_exit", context, str(log))
    assert has_ended(log)
