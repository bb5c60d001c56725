"""Measures a window shuffle of an IterDataset.

Prints ns per element; lower is better.  1 M integers, read in order, shuffled in
windows of 1000, in batches of 256, with and without reading threads.

    python benchmarks/bench_dataset_window_shuffle.py
"""

import functools
from typing import Any

import numpy as np

from dataset_question import READ_OPTIONS, make_question
from harness import GRAIN, AtLeast, main
from workloads import BATCH, ROWS, SEED

WINDOW = 1000


def _shuffled(options: tuple[int, int] | None, library: Any) -> Any:
    numbers = library.MapDataset.source(np.arange(ROWS)).repeat()
    shuffled = library.experimental.WindowShuffleIterDataset(
        numbers.to_iter_dataset(options and library.ReadOptions(*options)),
        window_size=WINDOW,
        seed=SEED,
    )
    return shuffled.batch(BATCH)


QUESTION = make_question(
    "dataset_window_shuffle",
    "window shuffle of an IterDataset, windows of 1000, batch 256",
    {how: functools.partial(_shuffled, o) for how, o in READ_OPTIONS.items()},
    (AtLeast(10, GRAIN, ours="gristmill default"),),
)

if __name__ == "__main__":
    main(QUESTION)
