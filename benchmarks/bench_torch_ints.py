"""Measures a batch of integers from workers in PyTorch.

Prints us per batch; lower is better.  The dataset is a range, batch 256, 2 workers.

    python benchmarks/bench_torch_ints.py
"""

from typing import Any

from harness import AtLeast, Question, main
from torch_question import contestants
from workloads import BATCH

SAMPLES = 1_000_000_000
WORKERS = 2


def _build(loader_class: Any) -> Any:
    return loader_class(range(SAMPLES), batch_size=BATCH, num_workers=WORKERS)


QUESTION = Question(
    name="torch_ints",
    text="integers, batch 256, 2 workers",
    unit="us/batch",
    contestants=contestants(_build),
    targets=(AtLeast(5, ("torch",)),),
)

if __name__ == "__main__":
    main(QUESTION)
