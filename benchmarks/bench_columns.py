"""Measures a batch of a dict of arrays against indexing the arrays by hand.

Prints us per batch; lower is better.  20 columns of 1 M numbers, all rows shuffled,
batch 1024, one process; alone, and next to as many busy processes as there are cores.

    python benchmarks/bench_columns.py
"""

import functools
import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

import column_question as question
import peers
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch
from workloads import CHECKED_ROWS, ROWS, SEED, answer

WARM = 300


def _gristmill(columns: Any, epochs: int | None) -> Iterator[Any]:
    gristmill = peers.import_gristmill()
    count = len(next(iter(columns.values())))
    sampler = gristmill.IndexSampler(count, shuffle=True, num_epochs=epochs, seed=SEED)
    loader = gristmill.DataLoader(
        data_source=columns,
        sampler=sampler,
        operations=[gristmill.Batch(question.BATCH)],
        worker_count=0,
    )
    return iter(loader)


def _by_hand(columns: Any, epochs: int | None) -> Iterator[Any]:
    rng = np.random.default_rng(SEED)
    count = len(next(iter(columns.values())))
    for _ in question.passes(epochs):
        order = rng.permutation(count)
        for begin in range(0, count, question.BATCH):
            rows = order[begin : begin + question.BATCH]
            yield {name: column[rows] for name, column in columns.items()}


def _spin() -> None:
    while True:
        pass


def _measure(load: Any, busy: bool, settings: Settings) -> Measurement:
    answers = {"records": answer(load(question.columns(CHECKED_ROWS), 1)).records}
    columns = question.columns(settings.records or ROWS)
    spinning = [
        multiprocessing.Process(target=_spin, daemon=True)
        for _ in range((os.cpu_count() or 1) * busy)
    ]
    for process in spinning:
        process.start()
    try:
        seconds = seconds_per_batch(
            load(columns, None), 4 * settings.seconds, warm=WARM, at_least=WARM
        )
    finally:
        for process in spinning:
            process.kill()
    return Measurement(seconds * 1e6, answers)


QUESTION = Question(
    name="columns",
    text="a dict of 20 arrays of numbers, shuffled, batch 1024, one process",
    unit="us/batch",
    contestants={
        "gristmill": functools.partial(_measure, _gristmill, False),
        "by hand": functools.partial(_measure, _by_hand, False),
        "gristmill, busy machine": functools.partial(_measure, _gristmill, True),
        "by hand, busy machine": functools.partial(_measure, _by_hand, True),
    },
    targets=(
        AtLeast(1, ("by hand",)),
        AtLeast(1, ("by hand, busy machine",), ours="gristmill, busy machine"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
