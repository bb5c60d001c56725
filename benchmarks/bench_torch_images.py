"""Measures a batch of images from PyTorch workers to their consumer.

Prints ms per batch; lower is better.  Batches of 256 images of 3x224x224 bytes,
stacked by two workers; the consumer reads every cache line.

    python benchmarks/bench_torch_images.py
"""

from typing import Any

from harness import AtLeast, Question, main
from torch_question import contestants, read
from workloads import SEED

SHAPE = (3, 224, 224)
IMAGES = 512
BATCH_SIZE = 256
BATCHES = 1_000_000
WORKERS = 2


class Images:
    """A very long dataset of 512 different images."""

    def __init__(self) -> None:
        import torch

        generator = torch.Generator().manual_seed(SEED)
        shape = (IMAGES, *SHAPE)
        self.images = torch.randint(256, shape, dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> Any:
        return self.images[index % IMAGES]


def _build(loader_class: Any) -> Any:
    return loader_class(Images(), batch_size=BATCH_SIZE, num_workers=WORKERS)


QUESTION = Question(
    name="torch_images",
    text="batches of 256x3x224x224 bytes from 2 workers, read by the consumer",
    unit="ms/batch",
    contestants=contestants(_build, 1e3, read),
    targets=(AtLeast(4, ("torch",)),),
)

if __name__ == "__main__":
    main(QUESTION)
