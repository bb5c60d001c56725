"""Measures planning of packed rows from the lengths of 200,000 documents.

Prints ns of processor time per document; lower is better.  Log-normal lengths, 800
tokens on average, cut into pieces of at most a row.  "gristmill" plans all rows, in a
random order; "olmo-core" is its optimized best-fit-decreasing packer, which makes lists
of documents.

    python benchmarks/bench_pack_plan.py
"""

import time

import numpy as np

from harness import AtLeast, AtMost, Measurement, Settings, main
from plan_question import olmo_core_packer, pieces, question, spans

TIMES = 5


def _gristmill(capacity: int, settings: Settings) -> Measurement:
    from gristmill import _core

    documents = pieces(capacity)
    seconds = []
    for seed in range(TIMES):
        start = time.process_time()
        plan = _core.PackPlan(documents, capacity, seed=seed)
        # Fewer rows than there are, because counting them is not needed.
        rows = int(documents.sum() // capacity)
        plan.rows(np.arange(rows))
        seconds.append(time.process_time() - start)
    return Measurement(min(seconds) / len(documents) * 1e9)


def _olmo_core(capacity: int, settings: Settings) -> Measurement:
    documents = pieces(capacity)
    packer = olmo_core_packer(capacity)
    start = time.process_time()
    packer.pack_documents(spans(documents))
    return Measurement((time.process_time() - start) / len(documents) * 1e9)


QUESTION = question(
    "pack_plan",
    "planning best-fit rows of 2,048 and 8,192 tokens, 200,000 documents",
    "ns/document",
    {"gristmill": _gristmill, "olmo-core": _olmo_core},
    lambda ours, peer: (AtMost(150, ours=ours), AtLeast(1, (peer,), ours=ours)),
)

if __name__ == "__main__":
    main(QUESTION)
