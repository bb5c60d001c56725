"""Measures throughput by the size of a record.

Prints ms per GiB; lower is better.  Records of 256 B to 1 MiB in shuffled order, in one
process: out of an ArrayRecord file (uncompressed, ``group_size:1``, in the page cache),
and, as "array", out of a NumPy array.  Batches have 256 records, or 16 MiB.

The limits fill reused memory: "pread" is one system call per record, "take" NumPy's
``take`` of a batch's rows, "memcpy" a copy of as many consecutive rows.

    python benchmarks/bench_record_sizes.py
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import peers
import pread
import record_peers
from harness import (
    AtLeast,
    Measurement,
    Question,
    Settings,
    main,
    seconds_per_batch,
    throughput,
)
from record_files import array_record
from workloads import SEED, Workload

SIZES = {"256 B": 1 << 8, "4 KiB": 1 << 12, "64 KiB": 1 << 16, "1 MiB": 1 << 20}
GIB = 1 << 30
TOTAL = 1 << 28
MAX_RECORDS = 200_000
CHECKED_RECORDS = 512


def _records_of(size: int) -> int:
    return min(TOTAL // size, MAX_RECORDS)


def _batch_of(size: int) -> int:
    return min(256, (1 << 24) // size)


def _noise(count: int, size: int) -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, 256, (count, size), np.uint8)


def _path(count: int, size: int) -> str:
    def records() -> Iterator[bytes]:
        rng = np.random.default_rng(SEED)
        return (rng.bytes(size) for _ in range(count))

    return array_record(f"of-{size}-{count}", "group_size:1,uncompressed", records)


def _per_gib(seconds: float, size: int) -> float:
    return seconds * 1e3 * GIB / (_batch_of(size) * size)


def _of_files(load, in_order: bool, size: int, settings: Settings) -> Measurement:
    work = Workload(
        _path(_records_of(size), size),
        batch_size=_batch_of(size),
        step=record_peers.parse,
    )
    checked = _path(min(CHECKED_RECORDS, _records_of(size)), size)
    seconds, answers = throughput(load, work, checked, settings, in_order=in_order)
    answers = _with_suffix(answers, f"of {size} B in a file")
    return Measurement(_per_gib(seconds, size), answers)


def _of_arrays(load, size: int, settings: Settings) -> Measurement:
    table = _noise(_records_of(size), size)
    work = Workload(table, batch_size=_batch_of(size))
    checked = table[:CHECKED_RECORDS]
    seconds, answers = throughput(load, work, checked, settings, in_order=True)
    answers = _with_suffix(answers, f"of {size} B in an array")
    return Measurement(_per_gib(seconds, size), answers)


def _with_suffix(answers: dict[str, str], suffix: str) -> dict[str, str]:
    """Appends to the names of checks, since only equal data have equal answers."""
    return {f"{check} {suffix}": digest for check, digest in answers.items()}


def _limit(
    fill: Callable[[np.ndarray, np.ndarray, np.ndarray], Any],
    size: int,
    settings: Settings,
) -> Measurement:
    table = _noise(_records_of(size), size)
    buffer = np.ones((_batch_of(size), size), np.uint8)
    order = peers.index_batches(Workload(table, batch_size=_batch_of(size)))
    batches = (fill(table, keys, buffer) for keys in order)
    return Measurement(_per_gib(seconds_per_batch(batches, settings.seconds), size))


def _take(table: np.ndarray, keys: np.ndarray, buffer: np.ndarray) -> None:
    # Modes other than "clip" use a temporary buffer.
    np.take(table, keys, axis=0, out=buffer, mode="clip")


def _copy(table: np.ndarray, keys: np.ndarray, buffer: np.ndarray) -> None:
    begin = min(int(keys[0]), len(table) - len(keys))
    np.copyto(buffer, table[begin : begin + len(keys)])


def _pread(size: int, settings: Settings) -> Measurement:
    count = _records_of(size)
    read = pread.reader_of(_path(count, size), count, size)
    order = peers.index_batches(Workload(range(count), batch_size=_batch_of(size)))
    return Measurement(
        _per_gib(seconds_per_batch(map(read, order), settings.seconds), size)
    )


LOADERS = {
    "gristmill": functools.partial(_of_files, record_peers.gristmill, True),
    "gristmill array": functools.partial(_of_arrays, peers.gristmill),
    "grain (0, 0)": functools.partial(_of_files, record_peers.grain_no_threads, True),
    "torch getitems": functools.partial(_of_files, record_peers.torch_batches, False),
    "pread": _pread,
    "take": functools.partial(_limit, _take),
    "memcpy": functools.partial(_limit, _copy),
}

QUESTION = Question(
    name="record_sizes",
    text="shuffled records of 256 B to 1 MiB, of a file and of an array, 0 workers",
    unit="ms/GiB",
    contestants={
        f"{name}, {text}": functools.partial(measure, size)
        for name, measure in LOADERS.items()
        for text, size in SIZES.items()
    },
    targets=tuple(
        AtLeast(times, (f"{peer}, {size}",), f"{ours}, {size}")
        for times, ours, peer in (
            (0.25, "gristmill", "pread"),
            (0.6, "gristmill array", "take"),
            (2, "gristmill", "grain (0, 0)"),
        )
        for size in SIZES
    ),
)

if __name__ == "__main__":
    main(QUESTION)
