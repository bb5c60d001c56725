"""Measures the time to the first packed rows of 10**8 documents.

Prints s; lower is better.  "gristmill" checks the lengths, which are in memory, and
plans the first 8 rows of 2,048 tokens.  "number of rows" also counts the rows of the
epoch, on all cores.

    python benchmarks/bench_pack_first_row.py
"""

import functools
import time

import numpy as np

from harness import AtMost, Measurement, Question, Settings, main
from plan_question import lengths

DOCUMENTS = 100_000_000
BLOCK = 1_000_000


def _measure(counts_rows: bool, settings: Settings) -> Measurement:
    from gristmill import _core

    documents = settings.records or DOCUMENTS
    all_lengths = np.resize(lengths(BLOCK), documents)
    start = time.perf_counter()
    plan = _core.PackPlan(all_lengths, 2048, seed=0)
    plan.rows(np.arange(8))
    if counts_rows:
        assert plan.num_rows > 8
    return Measurement(time.perf_counter() - start)


QUESTION = Question(
    name="pack_first_row",
    text="first rows of a packing plan of 10**8 documents",
    unit="s",
    contestants={
        "gristmill": functools.partial(_measure, False),
        "number of rows": functools.partial(_measure, True),
    },
    targets=(AtMost(1),),
)

if __name__ == "__main__":
    main(QUESTION)
