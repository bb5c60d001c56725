"""Measures worker_count="auto" against fixed numbers of workers.

Prints ms of wall time per output, after the number of workers has settled; lower is
better. `auto_question.py` has the workloads; in "changing", records take longer after
8 s. A name ends with the number of workers.

    python benchmarks/bench_auto_workers.py
"""

import functools

import auto_question
from harness import AtLeast, Question, main

NUMBERS = {name: numbers for name, (*_, numbers) in auto_question.WORKLOADS.items()}

QUESTION = Question(
    name="auto_workers",
    text='worker_count="auto" and fixed numbers of workers, settled',
    unit="ms/output",
    contestants={
        f"{name} {number}": functools.partial(auto_question.steady, name, number)
        for name, numbers in NUMBERS.items()
        for number in ("auto", *numbers)
    },
    targets=tuple(
        AtLeast(0.95, tuple(f"{name} {n}" for n in numbers), ours=f"{name} auto")
        for name, numbers in NUMBERS.items()
    ),
)

if __name__ == "__main__":
    main(QUESTION)
