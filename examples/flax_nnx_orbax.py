"""Train a Flax NNX model, lose the job in mid-epoch, and resume with Orbax.

    python examples/flax_nnx_orbax.py

The data are the 1,797 handwritten digits of scikit-learn. Orbax saves the model, its
optimizer and the position of the iterator in one checkpoint. A run that is stopped in
the middle of an epoch and restored ends with the same weights, bit for bit, as a run
without a stop.

    pip install 'gristmill[jax,orbax]' flax optax scikit-learn
"""

import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from sklearn.datasets import load_digits

import gristmill as grain
from gristmill.checkpoint import CheckpointRestore, CheckpointSave
from gristmill.jax import prefetch_to_device

TEST_RECORDS = 360
BATCH_SIZE = 64
EPOCHS = 12
HIDDEN = 128
LEARNING_RATE = 0.005
GOAL = 0.9  # Share of test images classified correctly.


# The data: one record is an image of 8x8 values from 0 to 16, and its label.


class Digits:
    """Digits in memory, as a data source."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self._images = images
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index):
        return {"image": self._images[index], "label": self._labels[index]}


class ScaleAndMove(grain.RandomMapTransform):
    """Scale values to [0, 1] and move the image by up to one pixel each way."""

    def random_map(self, element, rng):
        down, right = rng.integers(0, 3, size=2)
        image = np.pad(element["image"] / 16, 1)[down:, right:][:8, :8]
        return {"image": image.astype(np.float32), "label": element["label"]}


def batches(source: Digits):
    """Return an endless iterator of batches, on the device before their step."""
    loader = grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(len(source), shuffle=True, seed=7),
        operations=[ScaleAndMove(), grain.Batch(BATCH_SIZE, drop_remainder=True)],
        worker_count=2,
    )
    return prefetch_to_device(loader, depth=2)


# The model.


class Classifier(nnx.Module):
    """Two layers with dropout between them, which also draws random numbers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, HIDDEN, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.digits = nnx.Linear(HIDDEN, 10, rngs=rngs)

    def __call__(self, images):
        pixels = images.reshape(len(images), -1)
        return self.digits(self.dropout(nnx.relu(self.hidden(pixels))))


def make_model() -> tuple[Classifier, nnx.Optimizer]:
    model = Classifier(nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(LEARNING_RATE), wrt=nnx.Param)


@nnx.jit
def train_step(model, optimizer, batch):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(
            model(batch["image"]), batch["label"]
        ).mean()

    value, gradient = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradient)
    return value


def accuracy(model, images, labels) -> float:
    model.eval()
    guesses = jnp.argmax(model(images), axis=1)
    model.train()
    return float(jnp.mean(guesses == labels))


# Checkpoints: the state of training, and the position in the data.


def is_key(array) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def arrays_of(model, optimizer):
    """Return all arrays that training changes.

    The states of random number generators are included, as plain integers.
    """
    state = nnx.state((model, optimizer))
    return jax.tree.map(lambda a: jax.random.key_data(a) if is_key(a) else a, state)


def set_arrays(model, optimizer, arrays) -> None:
    """Set the arrays that `arrays_of` returned."""
    state = nnx.state((model, optimizer))
    new_state = jax.tree.map(
        lambda old, new: jax.random.wrap_key_data(new) if is_key(old) else new,
        state,
        arrays,
    )
    nnx.update((model, optimizer), new_state)


def save(manager, step: int, model, optimizer, iterator) -> None:
    parts = ocp.args.Composite(
        arrays=ocp.args.StandardSave(arrays_of(model, optimizer)),
        data=CheckpointSave(iterator),
    )
    manager.save(step, args=parts)
    manager.wait_until_finished()


def restore(manager, model, optimizer, iterator) -> int:
    """Restore all three from the last checkpoint, and return its step."""
    step = manager.latest_step()
    parts = ocp.args.Composite(
        arrays=ocp.args.StandardRestore(arrays_of(model, optimizer)),
        data=CheckpointRestore(iterator),
    )
    saved = manager.restore(step, args=parts)
    set_arrays(model, optimizer, saved["arrays"])
    return step


# The run.


def train(model, optimizer, iterator, steps: int) -> None:
    for _ in range(steps):
        loss = train_step(model, optimizer, next(iterator))
    print(f"  trained {steps} steps, loss {float(loss):.3f}")


def run(directory: pathlib.Path) -> None:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    images = digits.images[order].astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    source = Digits(images[TEST_RECORDS:], labels[TEST_RECORDS:])
    steps = len(source) * EPOCHS // BATCH_SIZE
    stop = steps // 2 + 5  # In mid-epoch, off every boundary.

    print("Without a stop:")
    model, optimizer = make_model()
    train(model, optimizer, batches(source), steps)
    test = images[:TEST_RECORDS] / 16, labels[:TEST_RECORDS]
    test_accuracy = accuracy(model, *test)
    print(f"  test accuracy {test_accuracy:.1%}")

    print(f"Stopped after {stop} steps, {stop * BATCH_SIZE / len(source):.2f} epochs:")
    stopped = make_model()
    iterator = batches(source)
    train(*stopped, iterator, stop)
    with ocp.CheckpointManager(directory) as manager:
        save(manager, stop, *stopped, iterator)
    iterator.close()
    del stopped, iterator

    print("Restored:")
    resumed, iterator = make_model(), batches(source)
    with ocp.CheckpointManager(directory) as manager:
        step = restore(manager, *resumed, iterator)
    train(*resumed, iterator, steps - step)

    expected, got = (arrays_of(*both) for both in ((model, optimizer), resumed))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    print("Weights, optimizer and generators are the same, bit for bit.")
    if test_accuracy < GOAL:
        raise SystemExit(f"Test accuracy is {test_accuracy:.1%}, below {GOAL:.0%}.")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        run(pathlib.Path(directory) / "checkpoints")


if __name__ == "__main__":
    main()
