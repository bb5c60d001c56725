"""Trains a classifier as torchvision's references do: with augmentation and CutMix."""

import pathlib

import numpy as np
import PIL.Image
import torch
import torchvision
from torch.utils.data import DataLoader, default_collate
from torchvision.transforms import v2

CLASSES = 3


def write_pictures(folder):
    rng = np.random.default_rng(1)
    for number in range(30):
        place = pathlib.Path(folder, f"class {number % CLASSES}")
        place.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(20, 40, 2)
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        PIL.Image.fromarray(pixels).save(place / f"{number}.png")


def pictures(folder, train):
    size = (16, 16)
    steps = [v2.PILToTensor()]
    if train:
        steps += [
            v2.RandomResizedCrop(size, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.TrivialAugmentWide(),
            v2.RandomErasing(),
        ]
    else:
        steps.append(v2.Resize(size, antialias=True))
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
    return torchvision.datasets.ImageFolder(folder, v2.Compose(steps))


class Mixed:
    """Collates samples and mixes pictures and labels, in the workers."""

    def __init__(self):
        self.mix = v2.RandomChoice(
            [v2.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)]
        )

    def __call__(self, samples):
        return self.mix(*default_collate(samples))


def trained(workers):
    torch.manual_seed(3)
    model = torchvision.models.shufflenet_v2_x0_5(num_classes=CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    train = DataLoader(
        pictures("pictures", True),
        8,
        sampler=torch.utils.data.RandomSampler(range(30)),
        num_workers=workers,
        collate_fn=Mixed(),
        drop_last=True,
    )
    rest = DataLoader(pictures("pictures", False), 7, num_workers=workers)
    for _ in range(2):
        model.train()
        for images, labels in train:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield "step", (images, labels, loss.item())
        model.eval()
        with torch.inference_mode():
            for images, labels in rest:
                yield "evaluation", (images, labels, model(images))
    yield "weights", dict(model.state_dict())


def main():
    write_pictures("pictures")
    for workers in (0, 2):
        for name, value in trained(workers):
            yield f"{workers} workers: {name}", value
