"""Measures padding of rows packed from the lengths of 200,000 documents.

Prints the percentage of a row that is empty; lower is better.  Log-normal lengths, 800
tokens on average, cut into pieces of at most a row.  "olmo-core" is its optimized
best-fit-decreasing packer.  Both pack all documents together.

    python benchmarks/bench_pack_density.py
"""

from harness import AtMost, Measurement, Settings, main
from plan_question import olmo_core_packer, pieces, question, spans


def _padding(tokens: int, rows: int, capacity: int) -> Measurement:
    return Measurement((1 - tokens / (rows * capacity)) * 100)


def _gristmill(capacity: int, settings: Settings) -> Measurement:
    from gristmill import _core

    documents = pieces(capacity)
    window = len(documents)
    plan = _core.PackPlan(documents, capacity, window=window, seed=0)
    return _padding(int(documents.sum()), plan.num_rows, capacity)


def _olmo_core(capacity: int, settings: Settings) -> Measurement:
    documents = pieces(capacity)
    packer = olmo_core_packer(capacity)
    rows, _, tokens = packer.pack_documents(spans(documents))
    return _padding(tokens, len(rows), capacity)


QUESTION = question(
    "pack_density",
    "empty part of best-fit rows of 2,048 and 8,192 tokens",
    "%",
    {"gristmill": _gristmill, "olmo-core": _olmo_core},
    lambda ours, peer: (AtMost(0.5, ours=ours), AtMost(1, than=peer, ours=ours)),
)

if __name__ == "__main__":
    main(QUESTION)
