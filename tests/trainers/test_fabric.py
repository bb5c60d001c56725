"""Tests that Fabric sets up our loader like torch's."""

import pytest
import torch
import torch.utils.data
from torch.utils.data import DistributedSampler

from gristmill.torch import DataLoader
from trainers.small import SAMPLES, Noisy, Plain, line

TorchLoader = torch.utils.data.DataLoader
pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),
]


def fabric_of(**options):
    # Imported here, because the import makes each fork of this process slower.
    from lightning.fabric import Fabric

    return Fabric(accelerator="cpu", **options)


def fitted(loader_class, **options):
    """Return the losses and the weights after two epochs."""
    fabric = fabric_of(devices=1)
    fabric.seed_everything(3, verbose=False)
    plain = line()
    model, optimizer = fabric.setup(plain, torch.optim.SGD(plain.parameters(), 0.001))
    loader = fabric.setup_dataloaders(
        loader_class(Noisy(), batch_size=4, shuffle=True, **options)
    )
    losses = []
    for _ in range(2):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, [p.tolist() for p in plain.parameters()]


@pytest.mark.parametrize(
    ("options", "iterator"),
    [
        ({}, "SingleProcessIterator"),
        ({"num_workers": 2}, "MultiProcessIterator"),
        ({"num_workers": 1, "persistent_workers": True}, "MultiProcessIterator"),
    ],
    ids=["no workers", "workers", "persistent"],
)
def test_training_with_our_batches_matches_torch(watch, options, iterator):
    theirs = fitted(TorchLoader, **options)
    assert not watch.batches
    assert fitted(DataLoader, **options) == theirs
    assert watch.batches == {iterator: 2 * 3}
    assert len(theirs[0]) == 6


def test_set_up_loader_keeps_our_attributes():
    fabric = fabric_of(devices=1)
    ours = DataLoader(Plain(), 4, num_workers=1, max_restarts=2, reorder_window=9)
    loader = fabric.setup_dataloaders(ours)
    assert (loader.max_restarts, loader.reorder_window) == (2, 9)
    assert loader.batch_sampler is ours.batch_sampler


def read_two_epochs(fabric, loader_class):
    """Return the class and sampler made by Fabric, and the batches of two epochs."""
    loader = fabric.setup_dataloaders(loader_class(Plain(), batch_size=2, shuffle=True))
    epochs = [[batch.tolist() for batch in loader] for _ in range(2)]
    return type(loader._dataloader), type(loader.sampler), epochs


def read_in_two_processes(fabric, folder):
    seen = [read_two_epochs(fabric, cls) for cls in (DataLoader, TorchLoader)]
    torch.save(seen, folder / f"{fabric.global_rank}.pt")


def test_two_processes_get_same_halves_as_torch(tmp_path):
    fabric = fabric_of(devices=2, strategy="ddp_fork")
    fabric.launch(read_in_two_processes, tmp_path)
    halves = []
    for rank in range(2):
        ours, theirs = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        assert ours[:2] == (DataLoader, DistributedSampler)
        assert ours[2] == theirs[2]
        halves.append([[int(n) for batch in epoch for n in batch] for epoch in ours[2]])
    for first, second in zip(*halves, strict=True):
        assert sorted(first + second) == list(range(SAMPLES))
    # Fabric called set_epoch for the second epoch.
    assert halves[0][0] != halves[0][1]
