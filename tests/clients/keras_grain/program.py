"""Fits `Model` on Grain's datasets and loader, and on a folder of pictures."""

import pathlib

import grain
import keras
import numpy as np
import PIL.Image
from absl import flags


class Points(grain.transforms.RandomMap):
    """Points of a plane with random noise."""

    def random_map(self, element, rng):
        x = np.array([element / 50, rng.random()], np.float32)
        return x, x.sum(keepdims=True)


def map_dataset():
    numbers = grain.MapDataset.range(50).shuffle(seed=4)
    return numbers.seed(5).random_map(Points()).batch(8)


def loader(workers):
    return grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, 50, 1),
        sampler=grain.samplers.IndexSampler(50, shuffle=True, seed=6, num_epochs=1),
        operations=[Points(), grain.transforms.Batch(8, drop_remainder=True)],
        worker_count=workers,
    )


class Recorder(keras.callbacks.Callback):
    """Records the logs of each batch."""

    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append((batch, {key: float(logs[key]) for key in logs}))


def fitted(data, rest):
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", metrics=["mae"])
    recorder = Recorder()
    history = model.fit(
        data, validation_data=rest, epochs=3, verbose=0, callbacks=[recorder]
    )
    yield "logs", recorder.logs
    yield "history", history.history
    yield "evaluation", model.evaluate(rest, verbose=0)
    yield "predictions", model.predict(rest, verbose=0)
    yield "weights", model.get_weights()


def write_pictures(folder):
    rng = np.random.default_rng(1)
    for number in range(30):
        place = pathlib.Path(folder, f"class {number % 3}")
        place.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(20, 40, 2)
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        PIL.Image.fromarray(pixels).save(place / f"{number}.png")


def pictures(folder):
    parts = keras.utils.image_dataset_from_directory(
        folder,
        image_size=(16, 16),
        batch_size=8,
        seed=3,
        validation_split=0.3,
        subset="both",
        format="grain",
        verbose=False,
    )
    for part in parts:
        for images, labels in part:
            yield "batch", (np.asarray(images), np.asarray(labels))
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    keras.utils.set_random_seed(7)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(parts[0], validation_data=parts[1], epochs=2, verbose=0)
    yield "history", history.history


def main():
    flags.FLAGS.mark_as_parsed()
    data = map_dataset()
    for kind, values in {
        "map": fitted(data, map_dataset()),
        "iter": fitted(data.to_iter_dataset(), data),
        "loader": fitted(loader(0), data),
        "loader with workers": fitted(loader(2), data),
    }.items():
        for name, value in values:
            yield f"{kind}: {name}", value
    write_pictures("pictures")
    for name, value in pictures("pictures"):
        yield f"pictures: {name}", value
