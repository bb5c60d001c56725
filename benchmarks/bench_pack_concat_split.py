"""Measures the time per row of sequences packed by ConcatThenSplitIterDataset.

Prints us per row; lower is better.  A list of int64 arrays of 41 tokens on average
through shuffle, repeat, map, packing and batch.

    python benchmarks/bench_pack_concat_split.py
"""

from harness import main
from pack_question import question

QUESTION = question(
    "pack_concat_split",
    "sequences laid end to end and cut",
    "ConcatThenSplitIterDataset",
)

if __name__ == "__main__":
    main(QUESTION)
