"""Trains with prepared loaders, skips batches, gathers, dispatches, and resumes."""

import random

import accelerate
import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader


class Points(torch.utils.data.Dataset):
    """Points of a plane with random noise, from the generators that workers seed."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        noise = random.random() + np.random.random() + torch.rand(()).item()  # noqa: NPY002
        x = torch.tensor([float(index), noise])
        return {"x": x, "y": x.sum(0, keepdim=True)}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.arange(50.0))


def make_accelerator(**settings):
    """Return a new `Accelerator` with these settings."""
    # Accelerate keeps the first settings of a process until its state is reset.
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    accelerate.utils.set_seed(3)
    return accelerate.Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(**settings)
    )


def trained(workers):
    accelerator = make_accelerator(use_seedable_sampler=True)
    model = torch.nn.Linear(2, 1)
    model, optimizer, loader, rest = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-4),
        DataLoader(Points(), 8, shuffle=True, num_workers=workers),
        DataLoader(Points(), 7, num_workers=workers),
    )
    for epoch in range(3):
        loader.set_epoch(epoch)
        skipped = accelerator.skip_first_batches(loader, 2) if epoch == 1 else loader
        for batch in skipped:
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            yield "step", (batch, loss.item())
    for batch in rest:
        yield (
            "gathered",
            accelerator.gather_for_metrics((model(batch["x"]), batch["y"])),
        )
    yield "weights", dict(model.state_dict())


def streamed(workers, **settings):
    loader = DataLoader(Stream(), 8, num_workers=workers)
    prepared = make_accelerator(**settings).prepare(loader)
    for _ in range(2):
        yield [*prepared]


def resumed(workers):
    """Yield two batches, the rest, and the rest again after a resume."""

    def prepared():
        accelerator = make_accelerator(
            use_stateful_dataloader=True, use_seedable_sampler=True
        )
        loader = DataLoader(torch.arange(50.0), 8, shuffle=True, num_workers=workers)
        return accelerator.prepare(loader)

    loader = prepared()
    batches = iter(loader)
    yield [next(batches) for _ in range(2)]
    state = loader.state_dict()
    yield [*batches]
    loader = prepared()
    loader.load_state_dict(state)
    yield [*loader]


def main():
    for workers in (0, 2):
        for name, value in trained(workers):
            yield f"{workers} workers: {name}", value
        for value in resumed(workers):
            yield f"{workers} workers: resumed", value
        for dispatch in (False, True):
            for value in streamed(workers, dispatch_batches=dispatch):
                yield f"{workers} workers: dispatch {dispatch}", value
    for value in streamed(0, split_batches=True, dispatch_batches=True):
        yield "split", value
