"""Measures a shuffled batch of a TensorDataset, without workers.

Prints us per batch; lower is better.  A million rows of 5 floats, batch 256.
"indexing" is ``rows[order[i : i + 256]]`` in a loop.

    python benchmarks/bench_torch_tensor_dataset.py
"""

import itertools
from collections.abc import Iterator
from typing import Any

from harness import (
    AtLeast,
    AtMost,
    Measurement,
    Question,
    Settings,
    main,
    seconds_per_batch,
)
from torch_question import contestants
from workloads import BATCH, ROWS, SEED

COLUMNS = 5


def _rows() -> Any:
    import torch

    return torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(SEED))


def _build(loader_class: Any) -> Any:
    from torch.utils.data import RandomSampler, TensorDataset

    dataset = TensorDataset(_rows())
    passes = RandomSampler(dataset, num_samples=1000 * ROWS)
    return loader_class(dataset, batch_size=BATCH, sampler=passes)


def _indexed() -> Iterator[Any]:
    import torch

    rows = _rows()
    for _ in itertools.count():
        order = torch.randperm(ROWS)
        for start in range(0, ROWS, BATCH):
            yield rows[order[start : start + BATCH]]


def _indexing(settings: Settings) -> Measurement:
    return Measurement(seconds_per_batch(_indexed(), settings.seconds) * 1e6)


QUESTION = Question(
    name="torch_tensor_dataset",
    text="TensorDataset of 5 floats, shuffled, batch 256, 0 workers",
    unit="us/batch",
    contestants={**contestants(_build), "indexing": _indexing},
    targets=(AtLeast(10, ("torch",)), AtMost(1.5, "indexing")),
)

if __name__ == "__main__":
    main(QUESTION)
