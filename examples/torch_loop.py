"""Train a digit classifier in a plain PyTorch loop, with torch's loader and with ours.

    python examples/torch_loop.py [--epochs N]

One line differs: ``from gristmill.torch import DataLoader``.  The images are
scikit-learn's 1,797 handwritten digits, 8 x 8 pixels each. Two worker processes move
them at random and add noise, with generators seeded by the loader. All seeds and draws
equal torch's, so both runs see the same batches and end with the same weights, bit for
bit.

The runs take turns, epoch by epoch. The printed figures are medians without the first
epoch, in which workers start. Processor time is that of this process and all workers.
If other programs use the processors, the time of an epoch depends on the scheduler;
processor time depends less on it.

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
        augmented: Whether to move images by up to one pixel and add noise, at random.
    """

    def __init__(self, images, labels, augmented=False):
        self.images, self.labels, self.augmented = images, labels, augmented

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augmented:
            down, right = torch.randint(-1, 2, (2,)).tolist()
            image = image.roll((down, right), (1, 2))
            image = image + 0.05 * torch.randn(image.shape)
        return image, self.labels[index]


def load_data():
    """Return the training images and the test images, as `Digits`."""
    # Imported here, because workers that unpickle `Digits` do not need scikit-learn.
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(
        len(digits.target), generator=torch.Generator().manual_seed(0)
    )
    images = torch.from_numpy(digits.images).float()[order, None] / 16
    labels = torch.from_numpy(digits.target)[order]
    train = Digits(images[TEST_IMAGES:], labels[TEST_IMAGES:], augmented=True)
    return train, Digits(images[:TEST_IMAGES], labels[:TEST_IMAGES])


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 10)
    )


class Run:
    """A model that is trained on batches of one loader, epoch by epoch.

    Attributes:
        first_s: Time to the first batch, including the workers' start, in s.
        epochs_s: Time of each epoch, in s.
        processors_s: Processor time of each epoch, in s.
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
            # A separate generator, so that the runs may take turns.
            generator=torch.Generator().manual_seed(42),
        )
        self.first_s = None
        self.epochs_s = []
        self.processors_s = []

    def train_epoch(self):
        processor_start, start = processor_time(), time.perf_counter()
        for batch in self.loader:
            if self.first_s is None:
                self.first_s = time.perf_counter() - start
            self.step(*batch)
        self.epochs_s.append(time.perf_counter() - start)
        self.processors_s.append(processor_time() - processor_start)

    def step(self, images, labels):
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


@torch.no_grad()
def accuracy(model, digits):
    return (model(digits.images).argmax(1) == digits.labels).float().mean().item()


def processor_time():
    """Return the processor time of this process and its descendants, in s."""
    parents, times = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            threads = (folder / "task").glob("*/schedstat")
            times[folder.name] = sum(int(t.read_text().split()[0]) for t in threads)
        except OSError:  # It has ended, or belongs to another user.
            continue
        parents[folder.name] = fields[1]
    return (
        sum(time_ns for name, time_ns in times.items() if is_ours(name, parents)) / 1e9
    )


def is_ours(name, parents):
    """Return whether a process is this one or a descendant."""
    while name in parents:
        if name == str(os.getpid()):
            return True
        name = parents[name]
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=9)
    epochs = parser.parse_args().epochs
    # More threads do not speed up such a small model, and compete with the workers.
    torch.set_num_threads(1)
    training_digits, test_digits = load_data()
    classes = {"torch": torch.utils.data.DataLoader, "gristmill": DataLoader}
    runs = {
        name: Run(loader_class, training_digits)
        for name, loader_class in classes.items()
    }
    for epoch in range(epochs):
        # Each run is first in every other epoch, so that other load on the machine
        # slows down both.
        for run in [*runs.values()][:: 1 if epoch % 2 else -1]:
            run.train_epoch()
    for name, run in runs.items():
        # The first epoch includes the start of the workers.
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
