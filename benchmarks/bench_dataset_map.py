"""Measures the time per element of a shuffled, repeated, sharded and mapped dataset.

Prints ns per element; lower is better.  10 M numbers, two epochs, every fourth, plus
one, in batches of 256, without reading threads.

    python benchmarks/bench_dataset_map.py
"""

from typing import Any

from dataset_question import make_question
from harness import AtLeast, main
from workloads import BATCH

NUMBERS = 10_000_000


def chain(library: Any) -> Any:
    """Returns the dataset of batches that this benchmark and others iterate over."""
    dataset = library.MapDataset.range(NUMBERS).shuffle(1).repeat(2)[1::4]
    return dataset.map(lambda x: x + 1).batch(BATCH)


def _without_threads(library: Any) -> Any:
    return chain(library).to_iter_dataset(library.ReadOptions(0, 0))


QUESTION = make_question(
    "dataset_map",
    "10 M numbers shuffled, repeated, sharded, mapped, batch 256, no threads",
    {"": _without_threads},
    (AtLeast(20, ("grain",)),),
)

if __name__ == "__main__":
    main(QUESTION)
