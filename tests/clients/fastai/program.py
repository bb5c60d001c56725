"""Fits a `Learner` on torch loaders: one-cycle training, validation, predictions."""

import torch
from fastai.callback.core import Callback
from fastai.callback.schedule import Learner
from fastai.data.core import DataLoaders
from fastai.metrics import mae
from fastai.torch_core import set_seed
from torch.utils.data import DataLoader


class Points(torch.utils.data.Dataset):
    """Points of a plane with random noise, from the generator that workers seed."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        x = torch.tensor([index / 50, torch.rand(()).item()])
        return x, x.sum(0, keepdim=True)


class BatchLog(Callback):
    """Records the batches and the losses."""

    def __init__(self):
        self.seen = []

    def after_batch(self):
        self.seen.append((self.training, self.xb, self.yb, self.loss.item()))


def fitted(workers):
    set_seed(3, reproducible=True)
    loaders = DataLoaders(
        DataLoader(Points(), 8, shuffle=True, num_workers=workers),
        DataLoader(Points(), 7, num_workers=workers),
        device="cpu",
    )
    log = BatchLog()
    loss = torch.nn.functional.mse_loss
    learner = Learner(
        loaders, torch.nn.Linear(2, 1), loss_func=loss, metrics=mae, cbs=[log]
    )
    with learner.no_bar(), learner.no_logging():
        learner.fit_one_cycle(2, 1e-2)
        yield "batches", log.seen
        yield "losses", [[*values] for values in learner.recorder.values]
        yield "validation", [*learner.validate()]
        yield "predictions", [*learner.get_preds(dl=loaders.valid)]
    yield "weights", dict(learner.model.state_dict())


def main():
    for workers in (0, 2):
        for name, value in fitted(workers):
            yield f"{workers} workers: {name}", value
