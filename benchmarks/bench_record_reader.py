"""Measures the record reader alone, without a loader.

Prints us per record, one thread; lower is better.  Records of 1 KiB, uncompressed,
in shuffled order, 256 at a time in one array.  "wheel" is
``read([i])`` of the array_record package.  "pread" is one system call for each record's
bytes, in C.

    python benchmarks/bench_record_reader.py
"""

import time
from collections.abc import Callable

import numpy as np

import pread
from harness import AtLeast, Measurement, Question, Settings, main
from record_files import array_record, noise
from workloads import BATCH, SEED, answer

RECORDS = 100_000
SIZE = 1024


def _path() -> str:
    options = "group_size:1,uncompressed"
    return array_record(f"plain-{RECORDS}", options, lambda: noise(RECORDS))


def _timed(read: Callable[[np.ndarray], np.ndarray], settings: Settings) -> Measurement:
    """Times `read`, which takes 256 keys and returns the records, (256, 1024)."""
    rng = np.random.default_rng(SEED)
    order = rng.permutation(RECORDS)[: RECORDS // BATCH * BATCH].reshape(-1, BATCH)
    digest = answer(read(keys).copy() for keys in order[:8]).stream
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < settings.seconds:
        read(order[count % len(order)])
        count += 1
    seconds = time.perf_counter() - start
    return Measurement(seconds / (count * BATCH) * 1e6, {"records": digest})


def _gristmill(settings: Settings) -> Measurement:
    from gristmill.sources import ArrayRecordDataSource

    reader = ArrayRecordDataSource(_path()).reader

    def read(keys: np.ndarray) -> np.ndarray:
        return reader.read_many(keys, packed=True)[0].reshape(-1, SIZE)

    return _timed(read, settings)


def _wheel(settings: Settings) -> Measurement:
    from array_record.python.array_record_module import ArrayRecordReader

    reader = ArrayRecordReader(_path())

    def read(keys: np.ndarray) -> np.ndarray:
        records = [reader.read([key])[0] for key in keys.tolist()]
        return np.frombuffer(b"".join(records), np.uint8).reshape(-1, SIZE)

    return _timed(read, settings)


def _pread(settings: Settings) -> Measurement:
    return Measurement(_timed(pread.reader_of(_path(), RECORDS, SIZE), settings).value)


QUESTION = Question(
    name="record_reader",
    text="the reader alone, 1 KiB uncompressed records into one array, 1 thread",
    unit="us/record",
    contestants={"gristmill": _gristmill, "wheel": _wheel, "pread": _pread},
    targets=(AtLeast(100, ("wheel",)), AtLeast(0.5, ("pread",))),
)

if __name__ == "__main__":
    main(QUESTION)
