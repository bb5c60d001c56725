"""Measures a batch of one sample in PyTorch, without workers.

Prints us of processor time per batch; lower is better.  The dataset is a range.

    python benchmarks/bench_torch_single.py
"""

import time
from typing import Any

from harness import AtLeast, Question, main
from torch_question import contestants

SAMPLES = 10_000_000


def _build(loader_class: Any) -> Any:
    return loader_class(range(SAMPLES), batch_size=1)


QUESTION = Question(
    name="torch_single",
    text="batch_size=1 of integers, 0 workers",
    unit="us/batch",
    contestants=contestants(_build, clock=time.process_time),
    targets=(AtLeast(2, ("torch",)),),
)

if __name__ == "__main__":
    main(QUESTION)
