"""Train a small convolutional network on JPEG files in JAX.

    python examples/train_photographs.py [--data DIRECTORY] [--epochs N]

The files are tiles of twelve photographs, in a folder each (`photographs.py`). Two
worker processes decode a random crop of each file, resize it, flip it half the time and
normalize it. The network learns which photograph a tile is from, and is tested on a
part of each photograph that it has never seen.

    pip install 'gristmill[image,jax]' optax scikit-image scikit-learn
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import photographs

import gristmill as grain
from gristmill import images, sources

SIDE = 48  # Pixels along an edge of the network's input.
BATCH_SIZE = 64
CHANNELS = (3, 16, 32, 64)
LEARNING_RATE = 0.005


def decode():
    return images.DecodeImage(channels=3, key="image")


def normalize():
    return images.Normalize(photographs.MEAN, photographs.STD, key="image")


def training_batches(source, epochs, workers=2):
    """Return batches of float32 (64, 48, 48, 3) and labels, with new random crops."""
    return grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(
            len(source), shuffle=True, seed=42, num_epochs=epochs
        ),
        operations=[
            decode(),
            images.RandomResizedCrop(SIDE, scale=(0.3, 1), key="image"),
            images.RandomHorizontalFlip(key="image"),
            normalize(),
            grain.Batch(BATCH_SIZE, drop_remainder=True),
        ],
        worker_count=workers,
    )


def test_batches(source):
    """Return batches of the middle of each picture, in order; the last is smaller."""
    middles = (
        grain.MapDataset.source(source)
        .map(decode())
        .map(images.Resize(SIDE + 8, key="image"))
        .map(images.CenterCrop(SIDE, key="image"))
        .map(normalize())
    )
    return middles.batch(BATCH_SIZE)


# The model: three convolutions, each halving the sides, and the mean over positions.


def new_parameters(key, classes):
    keys = jax.random.split(key, len(CHANNELS))
    shapes = zip(CHANNELS, CHANNELS[1:], keys, strict=False)
    return {
        "filters": [
            jax.random.normal(k, (3, 3, i, o)) * (2 / (9 * i)) ** 0.5
            for i, o, k in shapes
        ],
        "biases": [jnp.zeros(outputs) for outputs in CHANNELS[1:]],
        "last": jax.random.normal(keys[-1], (CHANNELS[-1], classes)) * 0.1,
    }


def logits(parameters, pictures):
    values = pictures
    for filters, bias in zip(parameters["filters"], parameters["biases"], strict=True):
        values = jax.lax.conv_general_dilated(
            values, filters, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        values = jax.nn.relu(values + bias)
    return values.mean((1, 2)) @ parameters["last"]


def loss(parameters, pictures, labels):
    losses = optax.softmax_cross_entropy_with_integer_labels(
        logits(parameters, pictures), labels
    )
    return losses.mean()


def make_train_step(optimizer):
    @jax.jit
    def train_step(parameters, moments, pictures, labels):
        value, gradient = jax.value_and_grad(loss)(parameters, pictures, labels)
        updates, moments = optimizer.update(gradient, moments)
        return optax.apply_updates(parameters, updates), moments, value

    return train_step


@jax.jit
def count_correct(parameters, pictures, labels):
    return jnp.sum(jnp.argmax(logits(parameters, pictures), 1) == labels)


def accuracy(parameters, source):
    batches = test_batches(source)
    counts = [count_correct(parameters, b["image"], b["label"]) for b in batches]
    return int(np.sum(counts)) / len(source)


# The run.


def run(folder, epochs):
    photographs.write(folder)
    train = sources.FolderDataSource(folder / "train")
    test = sources.FolderDataSource(folder / "test")
    print(f"{len(train)} pictures of {len(train.classes)} classes, {len(test)} to test")
    parameters = new_parameters(jax.random.key(0), len(train.classes))
    steps_an_epoch = len(train) // BATCH_SIZE
    decay = optax.cosine_decay_schedule(LEARNING_RATE, steps_an_epoch * epochs)
    optimizer = optax.adam(decay)
    train_step, moments = make_train_step(optimizer), optimizer.init(parameters)
    start = time.perf_counter()
    for step, batch in enumerate(training_batches(train, epochs), 1):
        parameters, moments, value = train_step(
            parameters, moments, batch["image"], batch["label"]
        )
        if step % (2 * steps_an_epoch) == 0:
            test_accuracy = accuracy(parameters, test)
            print(
                f"step {step:3d}  loss {float(value):.3f}  test accuracy"
                f" {test_accuracy:.1%}"
            )
    seconds = time.perf_counter() - start
    test_accuracy = accuracy(parameters, test)
    print(
        f"{step} batches in {seconds:.1f} s; {test_accuracy:.0%} of the unseen tiles"
        " are recognized."
    )


if __name__ == "__main__":
    photographs.main(__doc__, run)
