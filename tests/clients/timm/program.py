"""Loads pictures with `create_loader`: augmented, mixed, and for many epochs."""

import pathlib
import random

import numpy as np
import PIL.Image
import timm.data
import torch

SIZE = (3, 24, 24)
CLASSES = 3


def write_pictures(folder):
    draws = np.random.default_rng(1)
    for number in range(30):
        place = pathlib.Path(folder, f"class {number % CLASSES}")
        place.mkdir(parents=True, exist_ok=True)
        height, width = draws.integers(24, 48, 2)
        pixels = draws.integers(0, 256, (height, width, 3), np.uint8)
        PIL.Image.fromarray(pixels).save(place / f"{number}.png")


def seed():
    torch.manual_seed(4)
    np.random.seed(4)  # noqa: NPY002
    random.seed(4)


def loader(workers, training, **options):
    name = "train" if training else "validation"
    return timm.data.create_loader(
        timm.data.create_dataset("", root="pictures", split=name, is_training=training),
        input_size=SIZE,
        batch_size=8,
        is_training=training,
        num_workers=workers,
        device=torch.device("cpu"),
        persistent_workers=workers > 0,
        **options,
    )


def mixup():
    return timm.data.FastCollateMixup(
        mixup_alpha=0.4, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES
    )


def runs(workers):
    """Yield names and loaders."""
    yield "validation", loader(workers, False, use_prefetcher=False)
    augmented = {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.5}
    yield "augmented", loader(workers, True, use_prefetcher=False, **augmented)
    yield "mixed", loader(workers, True, collate_fn=mixup(), re_prob=0.3)
    if workers:
        options = {"use_multi_epochs_loader": True, "use_prefetcher": False}
        yield "many epochs", loader(workers, True, **options)


def main():
    write_pictures("pictures")
    for workers in (0, 2):
        seed()
        for name, batches in runs(workers):
            for epoch in range(2):
                for batch in batches:
                    yield f"{workers} workers, {name}, epoch {epoch}", batch
