"""Measures a shuffled record of 1 KiB of random bytes, with 2 workers.

Prints us of wall time per record; lower is better.  One ArrayRecord file of 200,000
records, group_size 1 and the default codec; np.frombuffer on each, batch 256.

    python benchmarks/bench_records_noise_workers.py
"""

from harness import GRAIN, AtLeast, main
from record_files import noise
from record_question import make_question

QUESTION = make_question(
    "records_noise_workers",
    "shuffled ArrayRecord, 1 KiB of random bytes, batch 256, 2 workers",
    noise,
    workers=2,
    targets=(AtLeast(60, GRAIN),),
)

if __name__ == "__main__":
    main(QUESTION)
