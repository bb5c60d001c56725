"""Measures batches of Parquet columns from 2 workers against one program.

Prints us per batch; lower is better. Like bench_parquet_columns, in wall time. Pyarrow
decodes on all cores; "by hand, one thread" on one, and has no target.

    python benchmarks/bench_parquet_columns_workers.py
"""

import functools
import time

import column_question as question
from harness import AtLeast, Question, main

measured = functools.partial(
    functools.partial, question.measure, clock=time.perf_counter
)

QUESTION = Question(
    name="parquet_columns_workers",
    text="20 columns of a Parquet file, shuffled, batch 1024, 2 workers",
    unit="us/batch",
    contestants={
        "gristmill": measured(question.gristmill(2), True),
        "gristmill, one process": measured(question.gristmill(0), True),
        "by hand": measured(question.by_hand(question.WINDOW), True),
        "by hand, one thread": measured(
            question.by_hand(question.WINDOW, use_threads=False), True
        ),
    },
    # The program by hand uses both cores, too; README.md has the profile.
    targets=(AtLeast(1, ("by hand",)),),
)

if __name__ == "__main__":
    main(QUESTION)
