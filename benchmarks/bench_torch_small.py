"""Measures the transfer of one small tensor from a worker in PyTorch.

Prints us per batch; lower is better. Every sample is a batch of 8 floats, ready in both
workers.

    python benchmarks/bench_torch_small.py
"""

from typing import Any

from harness import AtLeast, Question, main
from torch_question import contestants

BATCHES = 10_000_000
WORKERS = 2


class Ready:
    """Batches that cost nothing to make."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.full((8,), float(index))


def _build(loader_class: Any) -> Any:
    return loader_class(Ready(), batch_size=None, num_workers=WORKERS)


QUESTION = Question(
    name="torch_small",
    text="one tensor of 32 bytes a batch, 2 workers",
    unit="us/batch",
    contestants=contestants(_build),
    targets=(AtLeast(8, ("torch",)),),
)

if __name__ == "__main__":
    main(QUESTION)
