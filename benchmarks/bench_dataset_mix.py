"""Measures the time per element of a mixture.

Prints ns per element; lower is better.  Eight sources of 125,000 float32[16] rows, each
shuffled and repeated, mixed by weights, batch 256, without reading threads.

    python benchmarks/bench_dataset_mix.py
"""

from typing import Any

import numpy as np

from dataset_question import make_question
from harness import AtLeast, main
from workloads import BATCH, rows

SOURCES = 8
WEIGHTS = [0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05]


def _mixture(library: Any) -> Any:
    parts = [
        library.MapDataset.source(part).shuffle(seed).repeat()
        for seed, part in enumerate(np.split(rows(), SOURCES))
    ]
    mixed = library.MapDataset.mix(parts, WEIGHTS)
    return mixed.batch(BATCH).to_iter_dataset(library.ReadOptions(0, 0))


QUESTION = make_question(
    "dataset_mix",
    "8 shuffled sources of rows mixed by weights, batch 256, no threads",
    {"": _mixture},
    (AtLeast(20, ("grain",)),),
)

if __name__ == "__main__":
    main(QUESTION)
