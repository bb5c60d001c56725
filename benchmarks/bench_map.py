"""Measures the time per dict record through a Python Map, without workers.

Prints ns per record; lower is better.  ``{'x': float32[16], 'label': int}`` through
``x + 1.0``, shuffle, batch 256. "bare" is the user's own code in a loop: reading and
mapping, without batches.

    python benchmarks/bench_map.py
"""

import time

import peers
from harness import GRAIN, AtLeast, Measurement, Question, Settings, main, throughput
from workloads import BATCH, CHECKED_ROWS, DictRows, Workload, add_one, rows


def _measure(load, in_order: bool, settings: Settings) -> Measurement:
    table = rows()
    work = Workload(DictRows(table), step=add_one)
    checked = DictRows(table[:CHECKED_ROWS])
    seconds, answers = throughput(load, work, checked, settings, in_order=in_order)
    return Measurement(seconds / BATCH * 1e9, answers)


def _bare(settings: Settings) -> Measurement:
    work = Workload(DictRows(rows()), step=add_one)
    batches = peers.index_batches(work)
    next(batches)  # Shuffles, which is not the user's code.
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < settings.seconds:
        for index in next(batches).tolist():
            add_one(work.source[index])
        count += BATCH
    return Measurement((time.perf_counter() - start) / count * 1e9)


QUESTION = Question(
    name="map",
    text="dict records through a Python Map, batch 256, 0 workers",
    unit="ns/record",
    contestants={**peers.loader_contestants(_measure), "bare": _bare},
    targets=(AtLeast(25, GRAIN), AtLeast(2, ("torch",))),
)

if __name__ == "__main__":
    main(QUESTION)
