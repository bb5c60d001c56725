"""What does an interleave of 8 IterDatasets cost?

Prints ns per element; lower is better.  8 arrays of 125 000 integers, read in order,
one element of each in turn.

    python benchmarks/bench_dataset_interleave.py
"""

import numpy as np

from dataset_question import question
from harness import main
from workloads import ROWS

PARTS = 8


def _make(library, options):
    parts = [
        library.MapDataset.source(part).to_iter_dataset(options)
        for part in np.split(np.arange(ROWS), PARTS)
    ]
    return library.experimental.InterleaveIterDataset(parts, cycle_length=PARTS)


QUESTION = question(
    "dataset_interleave", "interleave of 8 IterDatasets", _make, times=10
)

if __name__ == "__main__":
    main(QUESTION)
