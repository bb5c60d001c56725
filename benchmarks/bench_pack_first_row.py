"""Measures the time to the first packed rows of 10**8 documents.

Prints s; lower is better.  "gristmill" opens a data set of Megatron, whose .idx file
is in the page cache, packs it into rows of 2,048 tokens, and iterates to the first
batch of 8 rows, in a process that has imported the library.  "plan" has the lengths in
memory, and plans the first 8 rows.  "number of rows" also counts the rows of the epoch,
on all cores, which a chain needs.

    python benchmarks/bench_pack_first_row.py
"""

import functools
import time

import numpy as np

import token_rows
from harness import AtMost, Measurement, Question, Settings, main
from plan_question import lengths

DOCUMENTS = 100_000_000
BLOCK = 1_000_000
LENGTH = 2048
ROWS = 8


def _chain(settings: Settings) -> Measurement:
    import gristmill as grain

    prefix = token_rows.prefix_of(settings.records or DOCUMENTS)
    token_rows.load_index(prefix)
    start = time.perf_counter()
    source = grain.sources.MegatronDataSource(prefix)
    batches = (
        grain.MapDataset.source(source)
        .pack(LENGTH, seed=0)
        .batch(ROWS)
        .to_iter_dataset()
    )
    first = next(iter(batches))
    seconds = time.perf_counter() - start
    assert first["tokens"].shape == (ROWS, LENGTH)
    return Measurement(seconds)


def _plan(counts_rows: bool, settings: Settings) -> Measurement:
    from gristmill import _core

    documents = settings.records or DOCUMENTS
    all_lengths = np.resize(lengths(BLOCK), documents)
    start = time.perf_counter()
    plan = _core.PackPlan(all_lengths, LENGTH, seed=0)
    plan.rows(np.arange(ROWS))
    if counts_rows:
        assert plan.num_rows > ROWS
    return Measurement(time.perf_counter() - start)


QUESTION = Question(
    name="pack_first_row",
    text="first batch of 8 packed rows of 10**8 documents",
    unit="s",
    contestants={
        "gristmill": _chain,
        "plan": functools.partial(_plan, False),
        "number of rows": functools.partial(_plan, True),
    },
    targets=(AtMost(1),),
)

if __name__ == "__main__":
    main(QUESTION)
