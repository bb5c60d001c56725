"""Measures opening a file of a million records and reading one.

Prints ms, the fastest of ten; lower is better. "wheel" is the array_record package.
Gristmill stores the file's index the first time.

    python benchmarks/bench_record_open.py
"""

import time
from collections.abc import Callable
from typing import Any

import record_open
from harness import AtMost, Measurement, Question, Settings, main

TIMES = 10


def _measure(
    opener: Callable[[str], Any], path: str, settings: Settings
) -> Measurement:
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        reader = opener(path)
        record_open.read(reader)
        seconds.append(time.perf_counter() - start)
        del reader
    return Measurement(min(seconds) * 1e3)


QUESTION = Question(
    name="record_open",
    text="opening a file of 1 M records and reading one: time",
    unit="ms",
    contestants=record_open.contestants(_measure),
    targets=(AtMost(0.7, "wheel"),),
)

if __name__ == "__main__":
    main(QUESTION)
