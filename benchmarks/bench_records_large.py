"""Measures a shuffled record of 100 KB, read by 2 workers.

Prints us of wall time per record; lower is better.  One ArrayRecord file of 4,000
uncompressed records, group_size 1; np.frombuffer on each, batch 64.

    python benchmarks/bench_records_large.py
"""

from harness import GRAIN, AtLeast, main
from record_files import pictures
from record_question import make_question

QUESTION = make_question(
    "records_large",
    "shuffled ArrayRecord, 100 KB uncompressed, batch 64, 2 workers",
    pictures,
    workers=2,
    targets=(
        AtLeast(10, GRAIN),
        AtLeast(4, ("torch", "torch getitems")),
    ),
    count=4000,
    options="group_size:1,uncompressed",
    batch=64,
)

if __name__ == "__main__":
    main(QUESTION)
