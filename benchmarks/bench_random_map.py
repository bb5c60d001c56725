"""Measures the time per record of a RandomMap that draws one number, without workers.

Prints ns per record; lower is better.  A float32[16] row of 1 M, shuffle, batch 256.
"bare" makes a new NumPy generator for each record, as the draws are defined, adds the
draw, and makes no batches.

    python benchmarks/bench_random_map.py
"""

import functools
import time

import numpy as np

import peers
from harness import GRAIN, AtLeast, Measurement, Question, Settings, main, throughput
from workloads import BATCH, CHECKED_ROWS, SEED, Rows, Workload, add_uniform, rows


def _measure(load, settings: Settings) -> Measurement:
    table = rows()
    work = Workload(Rows(table), random_step=add_uniform)
    checked = Rows(table[:CHECKED_ROWS])
    seconds, answers = throughput(load, work, checked, settings, in_order=True)
    return Measurement(seconds / BATCH * 1e9, answers)


def _bare(settings: Settings) -> Measurement:
    work = Workload(Rows(rows()))
    batches = peers.index_batches(work)
    next(batches)  # Shuffles, which is not the user's code.
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < settings.seconds:
        for index in next(batches).tolist():
            rng = np.random.Generator(np.random.Philox(key=SEED + count))
            add_uniform(work.source[index], rng)
            count += 1
    return Measurement((time.perf_counter() - start) / count * 1e9)


QUESTION = Question(
    name="random_map",
    text="RandomMap that draws one uniform, batch 256, 0 workers",
    unit="ns/record",
    contestants={
        "gristmill": functools.partial(_measure, peers.gristmill),
        "grain default": functools.partial(_measure, peers.grain_default),
        "grain (0, 0)": functools.partial(_measure, peers.grain_no_threads),
        "bare": _bare,
    },
    targets=(AtLeast(10, GRAIN),),
)

if __name__ == "__main__":
    main(QUESTION)
