"""Measures the memory of an open file of a million records.

Prints MiB by which the process has grown after opening and reading one record; lower
is better.  "wheel" is the array_record package.

    python benchmarks/bench_record_open_memory.py
"""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import psutil

import record_open
from harness import AtMost, Measurement, Question, Settings, main


def _held() -> float:
    return float(psutil.Process().memory_full_info().uss) / 2**20


def _measure(
    opener: Callable[[str], Any], path: str, settings: Settings
) -> Measurement:
    small = record_open.path(Settings(records=1000))
    first = opener(small)  # Loads threads and libraries first.
    record_open.read(first)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # So that no freed memory is reused.
    before = _held()
    reader = opener(path)
    record_open.read(reader)
    return Measurement(_held() - before)


QUESTION = Question(
    name="record_open_memory",
    text="opening a file of 1 M records: memory",
    unit="MiB",
    contestants=record_open.contestants(_measure),
    targets=(AtMost(0.6, "wheel"),),
)

if __name__ == "__main__":
    main(QUESTION)
