"""Measures the time to the first batch, with 1 to 16 workers.

Prints seconds from the call of iter() to the first batch, in a process that has taken a
batch without workers; lower is better. The pipeline is trivial: a list of 10,000
integers, batch 32. So the figure contains only the start of workers. Imports in the
user's process do not count, because libraries make them at different times.

    python benchmarks/bench_first_batch.py
"""

import dataclasses
import functools
import gc
import time

import peers
from harness import AtLeast, AtMost, Measurement, Question, Settings, main
from workloads import Workload, leaves

RECORDS = list(range(10_000))
BATCH_SIZE = 32
WORKERS = (1, 2, 4, 8, 16)


def _measure(load, workers: int, settings: Settings) -> Measurement:
    del settings
    work = Workload(RECORDS, BATCH_SIZE, workers=workers, epochs=1)
    next(load(dataclasses.replace(work, workers=0)))
    start = time.perf_counter()
    batches = load(work)
    first = next(batches)
    seconds = time.perf_counter() - start
    (array,) = leaves(first)
    assert array.shape == (BATCH_SIZE,) and len(set(array.tolist())) == BATCH_SIZE
    answers = {}
    if load is not peers.torch:
        answers[f"first batch of {workers}"] = str(array.tolist())
    del batches, first, array
    gc.collect()
    return Measurement(seconds, answers)


def _contestants():
    loads = {
        "gristmill": peers.gristmill,
        "grain default": peers.grain_default,
        "grain (0, 0)": peers.grain_no_threads,
        "torch": peers.torch,
    }
    return {
        f"{name} {workers}w": functools.partial(_measure, load, workers)
        for name, load in loads.items()
        for workers in WORKERS
    }


QUESTION = Question(
    name="first_batch",
    text="time to the first batch, 1 to 16 workers, trivial pipeline",
    unit="s",
    contestants=_contestants(),
    targets=(
        AtMost(0.5, ours="gristmill 16w"),
        AtMost(1.7, "gristmill 1w", ours="gristmill 16w"),
        AtLeast(10, ("grain default 16w", "grain (0, 0) 16w"), ours="gristmill 16w"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
