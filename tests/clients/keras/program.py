"""Fits, evaluates and predicts with `Model` on a torch loader."""

import keras
import numpy as np
import torch
from torch.utils.data import DataLoader


class Points(torch.utils.data.Dataset):
    """Points of a plane with random noise, from the generator that workers seed."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        x = torch.tensor([index / 50, torch.rand(()).item()])
        return x, x.sum(0, keepdim=True)


class Batches(keras.callbacks.Callback):
    """Records the logs of each batch."""

    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append((batch, {key: float(logs[key]) for key in logs}))


class RecordingModel(keras.Sequential):
    """Records the batches of its steps."""

    seen = ()

    def train_step(self, data):
        self.seen = (*self.seen, data)
        return super().train_step(data)


def fitted(workers):
    keras.utils.set_random_seed(7)
    model = RecordingModel(
        [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", metrics=["mae"], run_eagerly=True)
    train = DataLoader(Points(), 8, shuffle=True, num_workers=workers)
    rest = DataLoader(Points(), 7, num_workers=workers)
    callback = Batches()
    history = model.fit(
        train, validation_data=rest, epochs=3, verbose=0, callbacks=[callback]
    )
    yield "batches", [*model.seen]
    yield "logs", callback.logs
    yield "history", history.history
    yield "evaluation", model.evaluate(rest, verbose=0)
    yield "predictions", model.predict(rest, verbose=0)
    yield "weights", [np.asarray(weight) for weight in model.get_weights()]


def main():
    for workers in (0, 2):
        for name, value in fitted(workers):
            yield f"{workers} workers: {name}", value
