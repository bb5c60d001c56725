"""Train a digit classifier in a plain PyTorch loop, on torch's loader and on ours.

    python examples/torch_loop.py [--epochs N]

One line differs: ``from gristmill.torch import DataLoader``.  The images are
scikit-learn's 1,797 handwritten digits, 8 x 8 pixels each.  Two worker processes move
them at random and add noise, from generators that the loader has seeded.  As all seeds
and draws are torch's, both runs see the same batches and end with the same weights,
bit for bit.

The runs take turns, epoch by epoch, and what is printed are medians without the first
epoch, in which workers start.  Processor time is that of this process and all workers.
If other programs keep the processors busy, how long an epoch takes depends on whom the
system lets run; processor time depends less on that.

    pip install 'gristmill[torch]' scikit-learn
"""

import argparse
import os
import pathlib
import statistics
import time

import torch
import torch.utils.data
from torch import nn

from gristmill.torch import DataLoader

BATCH_SIZE = 64
TEST_IMAGES = 360
LEARNING_RATE = 0.003


class Digits(torch.utils.data.Dataset):
    """Images of shape (1, 8, 8) with values from 0 to 1, and their labels.

    Args:
        images: Shape (N, 1, 8, 8), float32.
        labels: Shape (N,), int64.
        moved: Whether to move them by up to one pixel and add noise, at random.
    """

    def __init__(self, images, labels, moved=False):
        self.images, self.labels, self.moved = images, labels, moved

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.moved:
            down, right = torch.randint(-1, 2, (2,)).tolist()
            image = image.roll((down, right), (1, 2))
            image = image + 0.05 * torch.randn(image.shape)
        return image, self.labels[index]


def load_data():
    """Return the images to train with and those to test with, as `Digits`."""
    # Here, as workers that import this module for `Digits` need no scikit-learn.
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(
        len(digits.target), generator=torch.Generator().manual_seed(0)
    )
    images = torch.from_numpy(digits.images).float()[order, None] / 16
    labels = torch.from_numpy(digits.target)[order]
    train = Digits(images[TEST_IMAGES:], labels[TEST_IMAGES:], moved=True)
    return train, Digits(images[:TEST_IMAGES], labels[:TEST_IMAGES])


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 10)
    )


class Run:
    """A model that is trained on batches of one loader, epoch by epoch.

    Attributes:
        first_s: When the first batch came, its workers' start included, in s.
        epochs_s: How long each epoch took, in s.
        processors_s: How long processors worked for each, in s.
    """

    def __init__(self, loader_class, digits):
        torch.manual_seed(42)
        self.model = make_model()
        self.optimizer = torch.optim.Adam(self.model.parameters(), LEARNING_RATE)
        self.loader = loader_class(
            digits,
            batch_size=BATCH_SIZE,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
            # Its own, so that the runs may take turns.
            generator=torch.Generator().manual_seed(42),
        )
        self.first_s = None
        self.epochs_s = []
        self.processors_s = []

    def train_epoch(self):
        worked, started = processor_time(), time.perf_counter()
        for batch in self.loader:
            if self.first_s is None:
                self.first_s = time.perf_counter() - started
            self.step(*batch)
        self.epochs_s.append(time.perf_counter() - started)
        self.processors_s.append(processor_time() - worked)

    def step(self, images, labels):
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


@torch.no_grad()
def accuracy(model, digits):
    return (model(digits.images).argmax(1) == digits.labels).float().mean().item()


def processor_time():
    """Return how long processors worked for this process and all below it, in s."""
    parents, times = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            threads = (folder / "task").glob("*/schedstat")
            times[folder.name] = sum(int(t.read_text().split()[0]) for t in threads)
        except OSError:  # It has ended, or is another user's.
            continue
        parents[folder.name] = fields[1]
    return (
        sum(time_ns for name, time_ns in times.items() if is_ours(name, parents)) / 1e9
    )


def is_ours(name, parents):
    """Return whether a process is this one or below it."""
    while name in parents:
        if name == str(os.getpid()):
            return True
        name = parents[name]
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=9)
    epochs = parser.parse_args().epochs
    # More threads do not help so small a model, and would compete with the workers.
    torch.set_num_threads(1)
    training_digits, test_digits = load_data()
    classes = {"torch": torch.utils.data.DataLoader, "gristmill": DataLoader}
    runs = {name: Run(each, training_digits) for name, each in classes.items()}
    for epoch in range(epochs):
        # In turns, and each first in every other epoch: what else the machine does
        # slows down both.
        for run in [*runs.values()][:: 1 if epoch % 2 else -1]:
            run.train_epoch()
    for name, run in runs.items():
        # The first epoch has the start of the workers.
        epoch_s, processor_s = (
            statistics.median(times[1:] or times)
            for times in (run.epochs_s, run.processors_s)
        )
        print(
            f"{name:9s}  first batch after {run.first_s:.2f} s, then"
            f" {len(run.loader)} batches in {epoch_s:.3f} s, {processor_s:.3f} s of"
            f" processor time, test accuracy {accuracy(run.model, test_digits):.1%}"
        )
    weights = [
        nn.utils.parameters_to_vector(run.model.parameters()) for run in runs.values()
    ]
    if not torch.equal(*weights):
        raise SystemExit("The weights differ.")
    print("The weights are the same, bit for bit.")


if __name__ == "__main__":
    main()
