"""Measures the time per row of sequences packed by FirstFitPackIterDataset.

Prints us per row; lower is better.  A list of int64 arrays of 41 tokens on average
through shuffle, repeat, map, packing and batch.

    python benchmarks/bench_pack_first_fit.py
"""

from harness import main
from pack_question import question

QUESTION = question(
    "pack_first_fit",
    "first-fit packing into 30 rows",
    "FirstFitPackIterDataset",
    num_packing_bins=30,
)

if __name__ == "__main__":
    main(QUESTION)
