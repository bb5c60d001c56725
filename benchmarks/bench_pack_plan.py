"""Measures planning of packed rows from the lengths of 200,000 documents.

Prints ns per document; lower is better.  Log-normal lengths, 800 tokens on average, cut
into pieces of at most a row.  "gristmill" plans all rows, in a random order, on one
core; "olmo-core" is its optimized best-fit-decreasing packer, which keeps the lists of
documents.

    python benchmarks/bench_pack_plan.py
"""

import functools
import time

import numpy as np

from harness import AtLeast, AtMost, Measurement, Question, Settings, main
from plan_question import CAPACITIES, olmo_core_packer, pieces, spans

TIMES = 5


def _gristmill(capacity: int, settings: Settings) -> Measurement:
    from gristmill import _core

    documents = pieces(capacity)
    seconds = []
    for seed in range(TIMES):
        start = time.perf_counter()
        plan = _core.PackPlan(documents, capacity, seed=seed)
        # Fewer rows than there are, because counting them is not needed.
        rows = int(documents.sum() // capacity)
        plan.rows(np.arange(rows))
        seconds.append(time.perf_counter() - start)
    return Measurement(min(seconds) / len(documents) * 1e9)


def _olmo_core(capacity: int, settings: Settings) -> Measurement:
    documents = pieces(capacity)
    packer = olmo_core_packer(capacity)
    start = time.perf_counter()
    packer.pack_documents(spans(documents))
    return Measurement((time.perf_counter() - start) / len(documents) * 1e9)


QUESTION = Question(
    name="pack_plan",
    text="planning best-fit rows of 2,048 and 8,192 tokens, 200,000 documents",
    unit="ns/document",
    contestants={
        f"{name}, {capacity}": functools.partial(measure, capacity)
        for name, measure in {"gristmill": _gristmill, "olmo-core": _olmo_core}.items()
        for capacity in CAPACITIES
    },
    targets=tuple(
        target
        for capacity in CAPACITIES
        for target in (
            AtMost(150, ours=f"gristmill, {capacity}"),
            AtLeast(1, (f"olmo-core, {capacity}",), ours=f"gristmill, {capacity}"),
        )
    ),
)

if __name__ == "__main__":
    main(QUESTION)
