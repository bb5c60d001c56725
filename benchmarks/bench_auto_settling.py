"""Measures the time until worker_count="auto" has settled on a number of workers.

Prints s; lower is better. It is the time from the start, or in "changing" from the
change, to the last change of the number before 5 s without one.

    python benchmarks/bench_auto_settling.py
"""

import functools

import auto_question
from harness import AtMost, Question, main

QUESTION = Question(
    name="auto_settling",
    text='time until worker_count="auto" has settled',
    unit="s",
    contestants={
        name: functools.partial(auto_question.settling, name)
        for name in auto_question.WORKLOADS
    },
    targets=tuple(AtMost(20, ours=name) for name in auto_question.WORKLOADS),
)

if __name__ == "__main__":
    main(QUESTION)
