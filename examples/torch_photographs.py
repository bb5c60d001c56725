"""Train a small convolutional network on JPEG files in PyTorch.

    python examples/torch_photographs.py [--data DIRECTORY] [--epochs N]

Like `train_photographs.py`: tiles of twelve photographs, in a folder each
(`photographs.py`); random crops, resized, flipped and normalized; a test on parts that
the network has never seen. The pictures are a dataset of Gristmill in the loader of
`gristmill.torch`, whose two workers make batches of tensors.

    pip install 'gristmill[image,torch]' scikit-image scikit-learn
"""

import time

import photographs
import torch
from torch import nn

import gristmill as grain
from gristmill import images, sources
from gristmill.torch import DataLoader

SIDE = 48  # Pixels along an edge of the network's input.
BATCH_SIZE = 64
LEARNING_RATE = 0.005


def training_pictures(source, epochs):
    """Return shuffled random crops of all pictures, different in each epoch."""
    return normalize_pictures(
        decode(grain.MapDataset.source(source).seed(42).shuffle().repeat(epochs))
        .random_map(images.RandomResizedCrop(SIDE, scale=(0.3, 1), key="image"))
        .random_map(images.RandomHorizontalFlip(key="image"))
    )


def test_pictures(source):
    """Return the middle of each picture, in order."""
    return normalize_pictures(
        decode(grain.MapDataset.source(source))
        .map(images.Resize(SIDE + 8, key="image"))
        .map(images.CenterCrop(SIDE, key="image"))
    )


def decode(dataset):
    return dataset.map(images.DecodeImage(channels=3, key="image"))


def normalize_pictures(dataset):
    """Normalize to float32 of (3, 48, 48), the layout of torch's convolutions."""
    normalize = images.Normalize(photographs.MEAN, photographs.STD, key="image")
    return dataset.map(normalize).map(images.ToLayout("CHW", key="image"))


def make_model(classes):
    layers = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)
    )


@torch.no_grad()
def accuracy(model, source):
    correct = 0
    for batch in DataLoader(test_pictures(source), batch_size=BATCH_SIZE):
        correct += (model(batch["image"]).argmax(1) == batch["label"]).sum().item()
    return correct / len(source)


def run(folder, epochs):
    photographs.write(folder)
    train = sources.FolderDataSource(folder / "train")
    test = sources.FolderDataSource(folder / "test")
    print(f"{len(train)} pictures of {len(train.classes)} classes, {len(test)} to test")
    # Workers use the other cores, and torch's threads would spin while they wait.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = make_model(len(train.classes))
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    loader = DataLoader(
        training_pictures(train, epochs), batch_size=BATCH_SIZE, num_workers=2
    )
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(loader))
    start = time.perf_counter()
    for step, batch in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        if step % 45 == 0:
            test_accuracy = accuracy(model, test)
            print(
                f"step {step:3d}  loss {loss.item():.3f}  test accuracy"
                f" {test_accuracy:.1%}"
            )
    seconds = time.perf_counter() - start
    test_accuracy = accuracy(model, test)
    print(
        f"{step} batches in {seconds:.1f} s; {test_accuracy:.0%} of the unseen tiles"
        " are recognized."
    )


if __name__ == "__main__":
    photographs.main(__doc__, run)
