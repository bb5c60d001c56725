"""Measures a call of `iterator.consumed()`, and of `get_state()` for comparison.

Prints microseconds of CPU time per call; lower is better.  Eight sources of 125,000
documents with known lengths, shuffled, repeated and mixed by tokens, in batches of 256.
The calls come after each of many batches, or, "late", after a jump over many epochs.
`consumed()` computes its counts from the state, so that a loop without calls pays
nothing.

    python benchmarks/bench_consumed.py
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gristmill as grain
from harness import AtMost, Measurement, Question, Settings, main

SOURCES = 8
WEIGHTS = [0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05]
DOCUMENTS = 125_000
LATE_BATCHES = 100_000


def _iterator() -> Any:
    random = np.random.default_rng(0)
    lengths = [
        random.lognormal(6, 1, DOCUMENTS).astype(np.int32) + 1 for _ in range(SOURCES)
    ]
    parts = [
        grain.MapDataset.range(DOCUMENTS).shuffle(seed).repeat()
        for seed in range(SOURCES)
    ]
    mixed = grain.MapDataset.mix(parts, WEIGHTS, unit="tokens", lengths=lengths)
    return iter(mixed.batch(256).to_iter_dataset(grain.ReadOptions(0, 0)))


def _measure(
    call: Callable[[Any], Any], skipped: int, settings: Settings
) -> Measurement:
    iterator = _iterator()
    if skipped:
        iterator.set_state({"next_index": skipped})
    next(iterator)
    call(iterator)  # The first call computes what later ones reuse.
    seconds = 0.0
    count = 0
    until = time.perf_counter() + 2 * settings.seconds
    while time.perf_counter() < until:
        next(iterator)
        start = time.process_time()
        call(iterator)
        seconds += time.process_time() - start
        count += 1
    return Measurement(seconds / count * 1e6)


def _consume(iterator: Any) -> None:
    iterator.consumed()


def _save(iterator: Any) -> None:
    iterator.get_state()


QUESTION = Question(
    name="consumed",
    text="a call of iterator.consumed() on 8 shuffled sources mixed by tokens",
    unit="us of CPU time",
    contestants={
        "gristmill": functools.partial(_measure, _consume, 0),
        "gristmill late": functools.partial(_measure, _consume, LATE_BATCHES),
        "get_state": functools.partial(_measure, _save, 0),
    },
    targets=(AtMost(500), AtMost(500, ours="gristmill late")),
)

if __name__ == "__main__":
    main(QUESTION)
