"""What does a window shuffle of an IterDataset cost?

Prints ns per element; lower is better.  An array of 1 M integers, read in order and
shuffled in windows of 1000.

    python benchmarks/bench_dataset_window_shuffle.py
"""

import numpy as np

from dataset_question import question
from harness import main
from workloads import ROWS, SEED

WINDOW = 1000


def _make(library, options):
    numbers = library.MapDataset.source(np.arange(ROWS))
    return library.experimental.WindowShuffleIterDataset(
        numbers.to_iter_dataset(options), window_size=WINDOW, seed=SEED
    )


QUESTION = question(
    "dataset_window_shuffle",
    "window shuffle of an IterDataset, windows of 1000",
    _make,
    times=10,
)

if __name__ == "__main__":
    main(QUESTION)
