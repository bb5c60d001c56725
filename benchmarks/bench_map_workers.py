"""Measures the time per dict record through a Python Map in 2 workers.

Prints ns of wall time per record; lower is better.  ``{'x': float32[16], 'label':
int}`` through ``x + 1.0``, shuffle, batch 256.  SPDL has 2 threads.  "bare" is the
user's own code in 2 processes: reading and mapping, without batches or transfer.

    python benchmarks/bench_map_workers.py
"""

import functools

import peers
from harness import (
    GRAIN,
    AtLeast,
    AtMost,
    Measurement,
    Question,
    Settings,
    main,
    throughput,
)
from workloads import BATCH, CHECKED_ROWS, DictRows, Workload, add_one, rows

WORKERS = 2


def _measure(load, in_order: bool, settings: Settings) -> Measurement:
    table = rows()
    work = Workload(DictRows(table), step=add_one, workers=WORKERS)
    checked = DictRows(table[:CHECKED_ROWS])
    seconds, answers = throughput(load, work, checked, settings, in_order=in_order)
    return Measurement(seconds / BATCH * 1e9, answers)


def _bare(settings: Settings) -> Measurement:
    work = Workload(DictRows(rows()), step=add_one)
    source = work.source
    batches = [indices.tolist() for indices in peers.index_batches(work.once(source))]

    def unit(first: int, number: int) -> None:
        for index in batches[(first + number) % len(batches)]:
            add_one(source[index])

    count = int(settings.seconds * 2000)
    units = [functools.partial(unit, 0), functools.partial(unit, count)]
    seconds = peers.seconds_in_processes(units, count)
    return Measurement(seconds / (WORKERS * count * BATCH) * 1e9)


QUESTION = Question(
    name="map_workers",
    text="dict records through a Python Map, batch 256, 2 workers",
    unit="ns/record",
    contestants={**peers.loader_contestants(_measure), "bare": _bare},
    targets=(
        AtLeast(15, GRAIN),
        AtLeast(6, ("torch",)),
        AtLeast(3, ("spdl",)),
        AtMost(1.7, "bare"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
