"""Trains with engines: metrics, `auto_dataloader`, and a deterministic resume."""

import random

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import (
    Engine,
    Events,
    create_supervised_evaluator,
    create_supervised_trainer,
)
from ignite.engine.deterministic import DeterministicEngine
from ignite.metrics import Loss, MeanAbsoluteError
from ignite.utils import manual_seed
from torch.utils.data import DataLoader


class Points(torch.utils.data.Dataset):
    """Points of a plane with random noise, from the generators that workers seed."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        noise = random.random() + np.random.random() + torch.rand(()).item()  # noqa: NPY002
        x = torch.tensor([float(index), noise])
        return x, x.sum(0, keepdim=True)


def trained(workers):
    manual_seed(3)
    model = torch.nn.Linear(2, 1)
    loss = torch.nn.functional.mse_loss
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    trainer = create_supervised_trainer(model, optimizer, loss)
    metrics = {"mae": MeanAbsoluteError(), "loss": Loss(loss)}
    evaluator = create_supervised_evaluator(model, metrics=metrics)
    rest = DataLoader(Points(), 7, num_workers=workers)
    steps, epochs = [], []

    @trainer.on(Events.ITERATION_COMPLETED)
    def keep(engine):
        steps.append((engine.state.batch, engine.state.output))

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        epochs.append(dict(evaluator.run(rest).metrics))

    trainer.run(
        DataLoader(Points(), 8, shuffle=True, num_workers=workers), max_epochs=3
    )
    yield "steps", steps
    yield "epochs", epochs
    yield "weights", dict(model.state_dict())


def auto_loaded(workers):
    manual_seed(4)
    loader = idist.auto_dataloader(
        Points(), batch_size=8, shuffle=True, num_workers=workers
    )
    seen = []
    engine = Engine(lambda engine, batch: seen.append(batch))
    # An epoch of the engine is shorter than one of the loader, which has 7 batches.
    engine.run(loader, max_epochs=3, epoch_length=5)
    yield "batches", seen


def resumed(workers):
    """Yield the batches of a run, and of a run that resumes it at iteration 9."""
    loader = DataLoader(Points(), 8, shuffle=True, num_workers=workers, drop_last=True)
    states = []

    def keep(engine, batch):
        seen.append((engine.state.iteration, batch))
        if engine.state.iteration == 9 and not states:
            states.append(engine.state_dict())

    for resume in (False, True):
        manual_seed(5)
        seen = []
        engine = DeterministicEngine(keep)
        if resume:
            engine.load_state_dict(states[0])
        engine.run(loader, max_epochs=3)
        yield "batches", seen


def main():
    for workers in (0, 2):
        for kind in (trained, auto_loaded, resumed):
            for name, value in kind(workers):
                yield f"{workers} workers, {kind.__name__}: {name}", value
