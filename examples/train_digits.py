"""Train a digit classifier on images read, augmented and batched by Gristmill.

    python examples/train_digits.py [--data DIRECTORY] [--picture FILE]

The images are scikit-learn's 1,797 handwritten digits, 8 x 8 pixels each. They are
written to disk as ArrayRecord, shuffled, shifted and made noisy at random by two
worker processes, and fed to a small network in pure JAX. Then the run stops in the
middle of an epoch, like a preempted job, and a new iterator continues from the saved
state with exactly the next batch. At the end it prints a table of the results for each
digit, and draws a picture of the mistakes.

    pip install 'gristmill[demo]'
"""

import argparse
import pathlib
import tempfile
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

import gristmill as grain

matplotlib.use("Agg")

SIDE = 8  # Pixels along an edge of an image.
CLASSES = 10
TEST_RECORDS = 360
BATCH_SIZE = 64
EPOCHS = 30
HIDDEN = 256
LEARNING_RATE = 0.1
MOMENTUM = 0.9
GOAL = 0.95  # Share of test images classified correctly.
MAX_DRAWN = 24  # Maximum number of digits in the picture.


# The data: one record is 64 bytes of pixels, values 0 to 16, and 1 byte of label.


def write_records(path: pathlib.Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Write (N, 8, 8) images and (N,) labels to an ArrayRecord file."""
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for image, label in zip(images.astype(np.uint8), labels, strict=True):
        writer.write(image.tobytes() + bytes([label]))
    writer.close()


class ParseDigit(grain.MapTransform):
    """Convert a record's bytes to an image in [0, 1] and a label."""

    def map(self, record):
        pixels = np.frombuffer(record, np.uint8, count=SIDE * SIDE)
        image = pixels.reshape(SIDE, SIDE).astype(np.float32) / 16
        return {"image": image, "label": np.int32(record[-1])}


class ShiftAndNoise(grain.RandomMapTransform):
    """Move the image by up to one pixel each way and add a little noise.

    The generator depends on the record's place in the run, not on the process that
    computes it, so every run with the same seed draws the same numbers.
    """

    def random_map(self, element, rng):
        down, right = rng.integers(0, 3, size=2)
        image = np.pad(element["image"], 1)[down:, right:][:SIDE, :SIDE]
        noise = rng.normal(scale=0.05, size=image.shape).astype(np.float32)
        return {**element, "image": image + noise}


def make_loader(path: pathlib.Path) -> grain.DataLoader:
    source = grain.ArrayRecordDataSource(str(path))
    return grain.DataLoader(
        data_source=source,
        sampler=grain.IndexSampler(
            len(source), shuffle=True, seed=42, num_epochs=EPOCHS
        ),
        operations=[
            ParseDigit(),
            ShiftAndNoise(),
            grain.Batch(BATCH_SIZE, drop_remainder=True),
        ],
        worker_count=2,
    )


# The model: one hidden layer, trained by gradient descent with momentum.


class Training(NamedTuple):
    parameters: dict[str, jax.Array]
    velocity: dict[str, jax.Array]


def start_training(key: jax.Array) -> Training:
    first, second = jax.random.split(key)
    pixels = SIDE * SIDE
    parameters = {
        "w1": jax.random.normal(first, (pixels, HIDDEN)) * (2 / pixels) ** 0.5,
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(second, (HIDDEN, CLASSES)) * (1 / HIDDEN) ** 0.5,
        "b2": jnp.zeros(CLASSES),
    }
    return Training(parameters, jax.tree.map(jnp.zeros_like, parameters))


def logits(parameters, images):
    pixels = images.reshape(len(images), -1)
    hidden = jax.nn.relu(pixels @ parameters["w1"] + parameters["b1"])
    return hidden @ parameters["w2"] + parameters["b2"]


def loss(parameters, images, labels):
    log_probabilities = jax.nn.log_softmax(logits(parameters, images))
    return -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=1))


@jax.jit
def train_step(training: Training, images, labels) -> tuple[Training, jax.Array]:
    value, gradient = jax.value_and_grad(loss)(training.parameters, images, labels)
    velocity = jax.tree.map(
        lambda v, g: MOMENTUM * v - LEARNING_RATE * g, training.velocity, gradient
    )
    parameters = jax.tree.map(jnp.add, training.parameters, velocity)
    return Training(parameters, velocity), value


@jax.jit
def predict(parameters, images) -> jax.Array:
    return jnp.argmax(logits(parameters, images), axis=1)


# The run.


def train(iterator, steps: int, test_images, test_labels) -> np.ndarray:
    """Train on `steps` batches and print progress; return the test predictions."""
    training = start_training(jax.random.key(0))
    test_accuracy = 0.0
    start = time.perf_counter()
    for step in range(1, steps + 1):
        batch = next(iterator)
        training, value = train_step(training, batch["image"], batch["label"])
        if step % 20 == 0 or step == steps:
            guesses = np.asarray(predict(training.parameters, test_images))
            test_accuracy = np.mean(guesses == test_labels)
            rate = step * BATCH_SIZE / (time.perf_counter() - start)
            print(
                f"\rstep {step:3d}/{steps}  loss {float(value):.3f}  "
                f"test accuracy {test_accuracy:6.1%}  {rate:7,.0f} images/s",
                end="",
                flush=True,
            )
    print()
    if test_accuracy <= GOAL:
        raise SystemExit(f"Test accuracy is {test_accuracy:.1%}, below {GOAL:.0%}.")
    return guesses


def show_resume(uninterrupted, resumed) -> None:
    """Draw the next batch of both iterators and check that they are equal."""
    expected, got = next(uninterrupted), next(resumed)
    for name in expected:
        np.testing.assert_array_equal(got[name], expected[name], strict=True)
    print(f"  its records, without a stop: {uninterrupted.ids()[:6].tolist()} ...")
    print(f"  its records, after resuming: {resumed.ids()[:6].tolist()} ...")
    print("The very next batch is the same, byte for byte, noise and all.")


def print_table(guesses: np.ndarray, labels: np.ndarray) -> None:
    """Print the share of correct test images of each digit, and the wrong guesses."""
    print("\ndigit  right                     what it was taken for")
    for digit in range(CLASSES):
        digit_guesses = guesses[labels == digit]
        right = np.mean(digit_guesses == digit)
        wrong = [
            f"{guess} ({np.sum(digit_guesses == guess)})"
            for guess in np.unique(digit_guesses)
            if guess != digit
        ]
        bar = "\u2588" * round(20 * right)
        print(f"{digit:5d} {right:6.1%}  {bar:20s}  {', '.join(wrong)}".rstrip())


def draw_mistakes(
    path: pathlib.Path, images: np.ndarray, guesses: np.ndarray, labels: np.ndarray
) -> None:
    """Draw the misclassified test images."""
    mistakes = np.flatnonzero(guesses != labels)
    columns = 6
    rows = max(1, -(-len(mistakes[:MAX_DRAWN]) // columns))
    figure, axes = plt.subplots(
        rows, columns, figsize=(1.5 * columns, 1.8 * rows), squeeze=False
    )
    figure.suptitle(f"{len(mistakes)} of {len(labels)} test digits were mistaken")
    for axis in axes.flat:
        axis.axis("off")
    for axis, i in zip(axes.flat, mistakes, strict=False):
        axis.imshow(images[i], cmap="gray_r")
        axis.set_title(f"{labels[i]}, taken for {guesses[i]}", fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"\nThe {len(mistakes)} mistaken ones are drawn in {path}.")


def run(directory: pathlib.Path, picture: pathlib.Path) -> None:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    images, labels = digits.images[order], digits.target[order]

    path = directory / "digits.array_record"
    write_records(path, images[TEST_RECORDS:], labels[TEST_RECORDS:])
    loader = make_loader(path)
    print(f"Wrote {len(images) - TEST_RECORDS:,} digits to {path}.")

    iterator = iter(loader)
    steps_an_epoch = (len(images) - TEST_RECORDS) // BATCH_SIZE
    steps = steps_an_epoch * (EPOCHS - 1) + steps_an_epoch // 2
    test_images = jnp.asarray(images[:TEST_RECORDS] / 16, jnp.float32)
    test_labels = labels[:TEST_RECORDS]
    guesses = train(iterator, steps, test_images, test_labels)

    state = iterator.get_state()
    print(f"Stopped after batch {steps}: the state is {len(state)} bytes of JSON.")
    resumed = iter(make_loader(path))
    resumed.set_state(state)
    print(f"Batch {steps + 1}:")
    show_resume(iterator, resumed)
    print_table(guesses, test_labels)
    draw_mistakes(picture, images, guesses, test_labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, help="folder for the record file")
    parser.add_argument(
        "--picture",
        type=pathlib.Path,
        default=pathlib.Path("digits.png"),
        help="where to draw the mistakes",
    )
    arguments = parser.parse_args()
    if arguments.data:
        arguments.data.mkdir(parents=True, exist_ok=True)
        run(arguments.data, arguments.picture)
    else:
        with tempfile.TemporaryDirectory() as directory:
            run(pathlib.Path(directory), arguments.picture)


main()
