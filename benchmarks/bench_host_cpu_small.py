"""Measures the processor time of small batches for 8 ranks of one host.

Prints ms of processor time for each batch of 256 rows that a Python function maps;
lower is better.  See `bench_host_cpu.py`.

    python benchmarks/bench_host_cpu_small.py
"""

import functools

from bench_host_cpu import measure
from harness import AtMost, Question, main
from host_question import DEALT, SAME, numbers

BATCHES = 3200

QUESTION = Question(
    name="host_cpu_small",
    text="processor time of 256 mapped rows, 8 ranks of one host",
    unit="ms",
    contestants={
        name: functools.partial(measure, numbers, BATCHES, sharing)
        for name, sharing in (DEALT | SAME).items()
    },
    targets=(AtMost(2, "one loader"),),
)

if __name__ == "__main__":
    main(QUESTION)
