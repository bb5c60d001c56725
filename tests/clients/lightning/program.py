"""Trains and validates with `Trainer`, predicts, and trains with `Fabric`."""

import random

import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader


class Points(torch.utils.data.Dataset):
    """Points of a plane with random noise, from the generators that workers seed."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        noise = random.random() + np.random.random() + torch.rand(()).item()  # noqa: NPY002
        x = torch.tensor([float(index), noise])
        return {"x": x, "y": x.sum(0, keepdim=True), "name": f"point {index}"}


class Plane(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(2, 1)
        self.seen = []

    def loss(self, name, batch):
        value = torch.nn.functional.mse_loss(self.model(batch["x"]), batch["y"])
        self.seen.append((name, batch, value.item()))
        self.log(name, value, batch_size=len(batch["x"]))
        return value

    def training_step(self, batch, index):
        return self.loss("train", batch)

    def validation_step(self, batch, index):
        self.loss("validate", batch)

    def predict_step(self, batch, index):
        return self.model(batch["x"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def loader(workers, shuffle=False, batch_size=8):
    options = {"persistent_workers": True} if workers else {}
    return DataLoader(
        Points(), batch_size, shuffle=shuffle, num_workers=workers, **options
    )


def trained(workers):
    lightning.seed_everything(3, workers=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    plane = Plane()
    trainer.fit(plane, loader(workers, shuffle=True), loader(workers))
    yield "seen", plane.seen
    yield (
        "metrics",
        {key: float(value) for key, value in trainer.logged_metrics.items()},
    )
    yield "predictions", trainer.predict(plane, loader(workers, batch_size=7))
    yield "weights", dict(plane.state_dict())


def trained_by_fabric():
    fabric = lightning.Fabric(accelerator="cpu")
    fabric.seed_everything(4, workers=True)
    model = torch.nn.Linear(2, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=1e-4))
    batches = fabric.setup_dataloaders(loader(2, shuffle=True))
    for _ in range(2):
        for batch in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
            fabric.backward(loss)
            optimizer.step()
            yield "batch", (batch, loss.item())
    yield "weights", dict(model.state_dict())


def main():
    for workers in (0, 2):
        for name, value in trained(workers):
            yield f"{workers} workers: {name}", value
    for name, value in trained_by_fabric():
        yield f"Fabric: {name}", value
