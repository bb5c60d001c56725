"""Train a digit classifier in a plain PyTorch loop, on torch's loader and on ours.

    python examples/torch_loop.py [--epochs N]

One line differs: ``from gristmill.torch import DataLoader``.  The images are
scikit-learn's 1,797 handwritten digits, 8 x 8 pixels each.  Two worker processes move
them at random and add noise, from generators that the loader has seeded.  As all seeds
and draws are torch's, both runs see the same batches and end with the same weights,
bit for bit.

    pip install 'gristmill[torch]' scikit-learn
"""

import argparse
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


def train(loader, epochs):
    """Train a new model, and return it."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    for _ in range(epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def accuracy(model, digits):
    return (model(digits.images).argmax(1) == digits.labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs
    training_digits, test_digits = load_data()
    weights = []
    for loader_class in (torch.utils.data.DataLoader, DataLoader):
        torch.manual_seed(42)
        loader = loader_class(
            training_digits,
            batch_size=BATCH_SIZE,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        started = time.perf_counter()
        model = train(loader, epochs)
        seconds = time.perf_counter() - started
        weights.append(nn.utils.parameters_to_vector(model.parameters()))
        name = loader_class.__module__.partition(".")[0]
        print(
            f"{name:9s}  {epochs * len(loader)} batches in {seconds:.1f} s,"
            f" test accuracy {accuracy(model, test_digits):.1%}"
        )
    if not torch.equal(*weights):
        raise SystemExit("The weights differ.")
    print("The weights are the same, bit for bit.")


if __name__ == "__main__":
    main()
