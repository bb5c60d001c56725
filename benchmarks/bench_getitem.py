"""Measures the time per record if the source is a Python object in memory.

Prints ns per record; lower is better.  ``source[i]`` returns a float32[16] row of
1 M; shuffle, batch 256, default options, no workers.

    python benchmarks/bench_getitem.py
"""

import peers
from harness import GRAIN, AtLeast, Measurement, Question, Settings, main, throughput
from workloads import BATCH, CHECKED_ROWS, Rows, Workload, rows


def _measure(load, in_order: bool, settings: Settings) -> Measurement:
    table = rows()
    work = Workload(Rows(table))
    checked = Rows(table[:CHECKED_ROWS])
    seconds, answers = throughput(load, work, checked, settings, in_order=in_order)
    return Measurement(seconds / BATCH * 1e9, answers)


QUESTION = Question(
    name="getitem",
    text="in-memory source by `__getitem__`, shuffle, batch 256, 0 workers",
    unit="ns/record",
    contestants=peers.loader_contestants(_measure),
    targets=(AtLeast(50, GRAIN), AtLeast(5, ("torch",)), AtLeast(4, ("spdl",))),
)

if __name__ == "__main__":
    main(QUESTION)
