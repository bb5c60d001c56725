"""Measures a shuffled record of 256 zipf int32, with 0 workers.

Prints us of wall time per record; lower is better.  One ArrayRecord file of 200,000
records, group_size 1 and the default codec; np.frombuffer on each, batch 256.

    python benchmarks/bench_records_tokens.py
"""

from harness import main
from record_files import tokens
from record_question import SMALL, make_question

QUESTION = make_question(
    "records_tokens",
    "shuffled ArrayRecord, 256 zipf int32, batch 256, 0 workers",
    tokens,
    workers=0,
    targets=SMALL,
)

if __name__ == "__main__":
    main(QUESTION)
