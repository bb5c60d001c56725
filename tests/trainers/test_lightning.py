"""Tests that Lightning trains with our loader like with torch's."""

import importlib
import itertools

import pytest
import torch
import torch.utils.data
from torch.utils.data import DistributedSampler, SequentialSampler

from gristmill.torch import DataLoader
from trainers.small import SAMPLES, Noisy, Plain

TorchLoader = torch.utils.data.DataLoader
pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),
]


@pytest.fixture(scope="module")
def parts():
    """Import the classes that need Lightning in the first test that uses them."""
    return importlib.import_module("trainers.lightning_parts")


def fitted(parts, loader_class, **options):
    """Return the losses and weights after two epochs of training and validation."""
    parts.seed_everything(3, verbose=False)
    model = parts.Line()
    parts.trainer().fit(
        model,
        loader_class(Noisy(), batch_size=3, shuffle=True, **options),
        loader_class(Noisy(), batch_size=4, **options),
    )
    return model.losses, [p.tolist() for p in model.parameters()]


@pytest.mark.parametrize(
    ("options", "iterator"),
    [
        ({}, "SingleProcessIterator"),
        ({"num_workers": 2}, "MultiProcessIterator"),
        ({"num_workers": 1, "persistent_workers": True}, "MultiProcessIterator"),
    ],
    ids=["no workers", "workers", "persistent"],
)
def test_fit_with_our_batches_matches_torch(parts, watch, options, iterator):
    theirs = fitted(parts, TorchLoader, **options)
    assert not watch.batches
    assert fitted(parts, DataLoader, **options) == theirs
    # Two batches for the check before training, then 4 and 3 in each epoch.
    assert watch.batches == {iterator: 2 + 2 * (4 + 3)}
    assert len(theirs[0]) == 16


def test_seeds_of_our_workers_match_torch(parts, monkeypatch):
    # Lightning would set it for the rest of the process.
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    losses = []
    for loader_class in (TorchLoader, DataLoader):
        parts.seed_everything(3, workers=True, verbose=False)
        model = parts.Line()
        loader = loader_class(Noisy(), batch_size=5, num_workers=1)
        parts.trainer(max_epochs=1).fit(model, loader)
        assert loader.worker_init_fn.func.__name__ == "pl_worker_init_function"
        losses.append(model.losses)
    assert losses[0] == losses[1]


def test_workers_end_when_fit_stops_early(parts, watch):
    loader = DataLoader(Noisy(), num_workers=2, persistent_workers=True)
    parts.trainer(limit_train_batches=2).fit(parts.Line(), loader)
    assert loader._iterator is None
    assert watch.batches == {"MultiProcessIterator": 4}
    assert all(iterator._shutdown for iterator in watch.iterators)
    assert watch.workers_have_ended()


def test_rebuilt_loader_is_ours_with_its_arguments(parts, watch):
    predicting = parts.trainer()
    batches = predicting.predict(parts.Predicts())
    built = predicting.predict_dataloaders
    assert [batch.tolist() for batch in batches] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert (type(built), built.hidden, built.max_restarts) == (parts.Positional, 5, 2)
    # Lightning wraps the batch sampler to record indices, so this one is new.
    assert type(built.batch_sampler).__module__.startswith("lightning")
    assert watch.batches == {"MultiProcessIterator": 3}


def test_lightning_finds_all_our_arguments(parts):
    options = {
        "num_workers": 2, "max_restarts": 3, "reorder_window": 9,
        "memory_limit": 1 << 20, "timeout": 5, "prefetch_factor": 3,
        "persistent_workers": True, "in_order": False,
    }  # fmt: skip
    loader = DataLoader(Plain(), 4, shuffle=True, **options)
    args, found = parts.find_arguments(loader, SequentialSampler([0]))
    assert args == ()
    assert {name: found[name] for name in options} == options
    with parts.replace_dunder_methods(TorchLoader, "dataset"):
        hooked = parts.Positional(5, Plain(), num_workers=1)
    args, _ = parts.find_arguments(hooked, None)
    assert args[0] == 5


def record(parts, loader_class, folder):
    """Train for two epochs in two processes."""
    torch.manual_seed(11)
    loader = loader_class(Plain(), batch_size=2, shuffle=True, num_workers=1)
    parts.trainer(strategy="ddp_fork", devices=2).fit(parts.Recording(folder), loader)


def test_two_processes_get_same_halves_as_torch(parts, tmp_path):
    seen = {}
    for loader_class in (TorchLoader, DataLoader):
        folder = tmp_path / loader_class.__module__
        folder.mkdir()
        record(parts, loader_class, folder)
        seen[loader_class] = [
            torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)
        ]
    for ours, theirs in zip(seen[DataLoader], seen[TorchLoader], strict=True):
        assert ours["class"] == "gristmill.torch"
        assert ours["sampler"] is DistributedSampler
        assert ours["batches"] == theirs["batches"]
    # Both processes together read every sample in each epoch, in different orders.
    first, second = (
        [list(itertools.chain(*rank["batches"][part])) for rank in seen[DataLoader]]
        for part in (slice(3), slice(3, 6))
    )
    for halves in (first, second):
        assert sorted(itertools.chain(*halves)) == list(range(SAMPLES))
    assert first != second


def test_set_epoch_reaches_the_sampler(parts):
    sampler = DistributedSampler(Plain(), num_replicas=2, rank=0)
    loader = DataLoader(Plain(), 5, sampler=sampler)
    [first], [again] = list(loader), list(loader)
    parts.set_sampler_epoch(loader, 1)
    [second] = loader
    assert first.tolist() == again.tolist() != second.tolist()
