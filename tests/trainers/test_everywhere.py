"""Tests of install(everywhere=True): torch's loader and subclasses iterate as ours."""

import copy
import os
import pickle
import warnings

import accelerate.data_loader
import pytest
import torch
import torch.utils.data
from torch.utils.data import dataloader

from faults.scripts import run
from gristmill._torch import loader as loader_module
from gristmill._torch.iterators import SingleProcessIterator
from gristmill.torch import DataLoader, install, uninstall
from trainers.loaders import Buffered, Endless, Graphs, Seeded, Unfrozen
from trainers.small import SAMPLES, Noisy, Plain

TorchLoader = torch.utils.data.DataLoader
pytestmark = [pytest.mark.multiprocess, pytest.mark.usefixtures("uninstalled")]

ALL_KINDS = [TorchLoader, Unfrozen, Endless, Graphs, Seeded, Buffered]


def epochs(kind, **options):
    """Return two epochs of a shuffled loader, and a random number drawn after them."""
    torch.manual_seed(5)
    loader = kind(Plain(), batch_size=4, shuffle=True, **options)
    found = [[batch.tolist() for batch in loader] for _ in range(2)]
    end = getattr(loader, "end", None)
    if end is not None:
        end()
    return found, torch.randint(1 << 30, ()).item()


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize(
    ("options", "iterator"),
    [
        ({}, "SingleProcessIterator"),
        ({"num_workers": 2}, "MultiProcessIterator"),
        ({"num_workers": 1, "persistent_workers": True}, "MultiProcessIterator"),
    ],
    ids=["no workers", "workers", "persistent"],
)
def test_batches_of_derived_loaders_match_torch(watch, kind, options, iterator):
    theirs = epochs(kind, **options)
    assert not watch.batches
    install(everywhere=True)
    assert epochs(kind, **options) == theirs
    assert set(watch.batches) == {iterator}
    assert watch.batches[iterator] >= 2 * 3


def test_derived_loader_can_end_its_workers(watch):
    install(everywhere=True)
    loader = Endless(Plain(), batch_size=4, num_workers=2)
    loader.reset()
    assert len(list(loader)) == 3
    watch.iterators[0]._shutdown_workers()
    loader.end()
    assert watch.workers_have_ended()


def test_existing_loaders_iterate_as_ours_and_stay_torch():
    early = TorchLoader(Plain(), 4)
    install(everywhere=True)
    assert torch.utils.data.DataLoader is dataloader.DataLoader is TorchLoader
    assert isinstance(early, torch.utils.data.DataLoader)
    assert isinstance(DataLoader(Plain(), 4), torch.utils.data.DataLoader)
    assert isinstance(iter(early), SingleProcessIterator)
    uninstall()
    assert type(iter(early)) is dataloader._SingleProcessDataLoaderIter


def test_iterators_are_instances_of_torch_classes():
    install(everywhere=True)
    single = iter(TorchLoader(Plain(), 4))
    several = iter(TorchLoader(Plain(), 4, num_workers=1))
    assert isinstance(single, dataloader._SingleProcessDataLoaderIter)
    assert isinstance(several, dataloader._MultiProcessingDataLoaderIter)
    assert len(list(several)) == 3


def through_pickle(loader):
    return pickle.loads(pickle.dumps(loader))


class Derived(TorchLoader):
    """A loader that can be pickled."""


@pytest.mark.parametrize("copied", [copy.deepcopy, through_pickle])
def test_loaders_can_be_copied(copied):
    install(everywhere=True, max_restarts=1)
    loader = copied(Derived(Plain(), batch_size=4))
    assert [len(batch) for batch in loader] == [4, 4, 2]
    assert "max_restarts" not in vars(loader)


class DiesOnce(torch.utils.data.Dataset):
    """Sample 3 ends its worker the first time that it is computed."""

    def __init__(self, folder):
        self.mark = folder / "died"

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if index == 3 and not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return index


def test_install_options_apply_to_all_loaders(tmp_path):
    install(everywhere=True, max_restarts=1)
    loader = TorchLoader(DiesOnce(tmp_path), 5, num_workers=1)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert TorchLoader(Plain()).max_restarts == 1
    uninstall()
    assert not hasattr(TorchLoader, "max_restarts")


def test_second_install_replaces_first():
    install(everywhere=True, max_restarts=1)
    install(max_restarts=2)
    assert type(iter(TorchLoader([0]))) is dataloader._SingleProcessDataLoaderIter
    install(everywhere=True)
    assert TorchLoader.max_restarts == 0
    uninstall()
    uninstall()
    assert "_get_iterator" in vars(TorchLoader)
    assert type(iter(TorchLoader([0]))) is dataloader._SingleProcessDataLoaderIter


def test_our_own_loader_keeps_its_own_options():
    install(everywhere=True, reorder_window=7)
    assert DataLoader(Plain(), num_workers=1).reorder_window is None
    assert TorchLoader(Plain(), num_workers=1).reorder_window == 7


def by_hand(monkeypatch):
    """Replace the class by hand, like a program before it imports Accelerate."""
    monkeypatch.setattr(torch.utils.data, "DataLoader", DataLoader)
    monkeypatch.setattr(accelerate.data_loader, "DataLoader", DataLoader)


def by_install(monkeypatch):
    install(everywhere=True)


@pytest.mark.parametrize("rebind", [by_hand, by_install])
def test_replaced_class_gives_no_warning_of_rebuilding(monkeypatch, rebind):
    monkeypatch.setattr(loader_module, "_warned_of_accelerate", False)
    rebind(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(Plain())
    assert not loader_module._warned_of_accelerate


def test_random_draws_of_samples_match_torch():
    seen = []
    for everywhere in (False, True):
        if everywhere:
            install(everywhere=True)
        torch.manual_seed(2)
        loader = TorchLoader(Noisy(), 4, shuffle=True, num_workers=2)
        seen.append([x.tolist() for x, _ in loader])
    assert seen[0] == seen[1]


def test_thread_workers_are_left_to_torch():
    # Runs in a subprocess, because torch's threads seed its generators.
    run("trainers/everywhere/threads")
