"""Measures an interleave of 8 IterDatasets.

Prints ns per element; lower is better.  8 endless arrays of 125 000 integers, read in
order, one element of each in turn, in batches of 256, with and without reading threads.

    python benchmarks/bench_dataset_interleave.py
"""

import functools
from typing import Any

import numpy as np

from dataset_question import READ_OPTIONS, make_question
from harness import GRAIN, AtLeast, main
from workloads import BATCH, ROWS

PARTS = 8


def _interleaved(options: tuple[int, int] | None, library: Any) -> Any:
    parts = [
        library.MapDataset.source(part)
        .repeat()
        .to_iter_dataset(options and library.ReadOptions(*options))
        for part in np.split(np.arange(ROWS), PARTS)
    ]
    joined = library.experimental.InterleaveIterDataset(parts, cycle_length=PARTS)
    return joined.batch(BATCH)


QUESTION = make_question(
    "dataset_interleave",
    "interleave of 8 IterDatasets, batch 256",
    {how: functools.partial(_interleaved, o) for how, o in READ_OPTIONS.items()},
    (AtLeast(10, GRAIN, ours="gristmill default"),),
)

if __name__ == "__main__":
    main(QUESTION)
