"""Measures the time per element of a dataset read with the default options.

Prints ns per element; lower is better.  The chain of bench_dataset_map.py: its batches
through ``to_iter_dataset()``, and elements through ``to_iter_dataset().batch(256)``.
Grain's default options are 16 threads that keep 500 elements ready.

    python benchmarks/bench_dataset_default.py
"""

from typing import Any

import bench_dataset_map
from dataset_question import make_question
from harness import AtLeast, main
from workloads import BATCH


def _batches(library: Any) -> Any:
    return bench_dataset_map.chain(library).to_iter_dataset()


def _elements(library: Any) -> Any:
    dataset = library.MapDataset.range(bench_dataset_map.NUMBERS).shuffle(1).repeat(2)
    return dataset[1::4].map(lambda x: x + 1).to_iter_dataset().batch(BATCH)


QUESTION = make_question(
    "dataset_default",
    "the same chain with default ReadOptions, batched before and after",
    {"batches": _batches, "elements": _elements},
    (
        AtLeast(100, ("grain batches",), ours="gristmill batches"),
        AtLeast(100, ("grain elements",), ours="gristmill elements"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
