"""Measures shuffled batches of a Parquet file of 20 columns against pyarrow alone.

Prints us of processor time per batch, of all threads; lower is better.  20 columns of
numbers, row groups of 20,000 rows, batch 1024, one process.  "by hand" is ten lines
with pyarrow and NumPy that mix 8 row groups at a time, like Gristmill; "by hand, in
groups" mixes the rows of one, and has no target; "hugging face" reads the file in
order.

    python benchmarks/bench_parquet_columns.py
"""

import functools
import time

import column_question as question
from harness import AtLeast, Question, main

measured = functools.partial(
    functools.partial, question.measure, clock=time.process_time
)

QUESTION = Question(
    name="parquet_columns",
    text="20 columns of a Parquet file, shuffled, batch 1024, one process",
    unit="us/batch (processor)",
    contestants={
        "gristmill": measured(question.gristmill(0), True),
        "by hand": measured(question.by_hand(question.WINDOW), True),
        "by hand, in groups": measured(question.by_hand(1), True),
        "hugging face": measured(question.hugging_face_iterable, False),
    },
    targets=(
        AtLeast(0.9, ("by hand",)),
        AtLeast(2, ("hugging face",)),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
