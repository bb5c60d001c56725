"""Measures a record of a file with 64 records a chunk, shuffled in windows.

Prints us per record; lower is better.  1 KiB of zipf int32, zstd; windows of 32
chunks are shuffled, and 256 records are read at a time: both sides read the same
order.  "wheel" is the array_record package.

    python benchmarks/bench_record_groups.py
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness import AtLeast, Measurement, Question, Settings, main
from record_files import array_record, tokens
from workloads import BATCH, SEED, answer

GROUP = 64
WINDOW = 32 * GROUP
RECORDS = 16 * WINDOW


def _path() -> str:
    options = f"group_size:{GROUP},zstd"
    return array_record(f"groups-{RECORDS}", options, lambda: tokens(RECORDS))


def _order() -> np.ndarray:
    """Returns keys of shape (batches, 256), whole windows one after another."""
    rng = np.random.default_rng(SEED)
    groups = rng.permutation(RECORDS // GROUP)
    keys = (groups[:, None] * GROUP + np.arange(GROUP)).reshape(-1, WINDOW)
    return rng.permuted(keys, axis=1).reshape(-1, BATCH)


def _timed(read: Callable[[np.ndarray], list[Any]], settings: Settings) -> Measurement:
    order = _order()
    parsed = ([np.frombuffer(r, np.int32) for r in read(keys)] for keys in order[:8])
    digest = answer(map(np.stack, parsed)).stream
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < settings.seconds:
        for keys in order:
            read(keys)
        count += len(order)
    seconds = time.perf_counter() - start
    return Measurement(seconds / (count * BATCH) * 1e6, {"records": digest})


def _gristmill(settings: Settings) -> Measurement:
    from gristmill.sources import ArrayRecordDataSource

    return _timed(ArrayRecordDataSource(_path()).__getitems__, settings)


def _wheel(settings: Settings) -> Measurement:
    from array_record.python.array_record_module import ArrayRecordReader

    reader = ArrayRecordReader(_path())
    return _timed(lambda keys: reader.read(keys.tolist()), settings)


QUESTION = Question(
    name="record_groups",
    text="group_size 64, zstd, windows of 32 chunks shuffled, 256 records at a time",
    unit="us/record",
    contestants={"gristmill": _gristmill, "wheel": _wheel},
    targets=(AtLeast(10, ("wheel",)),),
)

if __name__ == "__main__":
    main(QUESTION)
