"""Measures the transfer of a dict of ten small tensors in PyTorch.

Prints us per batch; lower is better. Like bench_torch_small, with ten tensors.

    python benchmarks/bench_torch_dict.py
"""

from typing import Any

from harness import AtLeast, Question, main
from torch_question import contestants

BATCHES = 10_000_000
WORKERS = 2
TENSORS = 10


class Ready:
    """Batches that cost little to make."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        import torch

        return {f"x{i}": torch.full((8,), float(index + i)) for i in range(TENSORS)}


def _build(loader_class: Any) -> Any:
    return loader_class(Ready(), batch_size=None, num_workers=WORKERS)


QUESTION = Question(
    name="torch_dict",
    text="dict of ten tensors of 32 bytes a batch, 2 workers",
    unit="us/batch",
    contestants=contestants(_build),
    targets=(AtLeast(15, ("torch",)),),
)

if __name__ == "__main__":
    main(QUESTION)
