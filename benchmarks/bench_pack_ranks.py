"""Measures the balance of packed rows over the ranks of a step.

Prints the greatest cost of a rank, divided by the mean of the ranks, in the worst step;
lower is better.  The cost of a row is the sum of the squares of its documents' lengths,
as that of attention.  Rows of 8,192 tokens from a million documents, log-normal, 800
tokens on average; a rank has 8 rows in a step.  "not balanced" are rows in a random
order.

    python benchmarks/bench_pack_ranks.py
"""

import functools

import numpy as np

from harness import AtMost, Measurement, Question, Settings, main
from plan_question import lengths

CAPACITY = 8192
DOCUMENTS = 1_000_000
ROWS_PER_RANK = 8
RANKS = (2, 8, 64, 1024)


def _worst(ranks: int, is_balanced: bool, settings: Settings) -> Measurement:
    from gristmill import _core

    step_rows = ranks * ROWS_PER_RANK
    plan = _core.PackPlan(
        lengths(DOCUMENTS),
        CAPACITY,
        seed=0,
        span_costs=np.arange(CAPACITY + 1.0) ** 2,
        group_rows=step_rows if is_balanced else 1,
    )
    steps = plan.num_rows // step_rows
    rows = plan.costs(np.arange(steps * step_rows)).reshape(steps, step_rows)
    worst = 1.0
    for costs in rows:
        dealt = costs.reshape(ranks, ROWS_PER_RANK)
        if is_balanced:
            dealt = costs[_core.deal(costs, ranks)]
        of_ranks = dealt.sum(axis=1)
        worst = max(worst, of_ranks.max() / of_ranks.mean())
    return Measurement(worst)


QUESTION = Question(
    name="pack_ranks",
    text="greatest cost of a rank over the mean, in the worst step",
    unit="x mean",
    contestants={
        f"{ranks} ranks{suffix}": functools.partial(_worst, ranks, not suffix)
        for suffix in ("", ", not balanced")
        for ranks in RANKS
    },
    targets=tuple(AtMost(1.02, ours=f"{ranks} ranks") for ranks in RANKS),
)

if __name__ == "__main__":
    main(QUESTION)
