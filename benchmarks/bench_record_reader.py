"""What does the record reader alone cost, without a loader?

Prints us per record, one thread; lower is better.  Records of 1 KiB, uncompressed,
in shuffled order, 256 at a time in one array.  "wheel" is
``read([i])`` of the array_record package.  "pread" is one system call for each record's
bytes, in C.

    python benchmarks/bench_record_reader.py
"""

import ctypes
import os
import subprocess
import time
from collections.abc import Callable

import numpy as np

from harness import AtLeast, Measurement, Question, Settings, main
from record_files import FOLDER, array_record, kept, noise
from workloads import BATCH, SEED, answer

RECORDS = 100_000
SIZE = 1024
PREADS = """
#include <stdint.h>
#include <unistd.h>
int preads(int fd, const int64_t* at, int64_t count, char* out, int64_t size) {
  for (int64_t i = 0; i < count; ++i)
    if (pread(fd, out + i * size, size, at[i]) != size) return -1;
  return 0;
}
"""


def _path() -> str:
    options = "group_size:1,uncompressed"
    return array_record(f"plain-{RECORDS}", options, lambda: noise(RECORDS))


def _timed(read: Callable[[np.ndarray], np.ndarray], settings: Settings) -> Measurement:
    """`read` is called with 256 keys and returns the records, (256, 1024)."""
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
    def build(path: str) -> None:
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", path]
        subprocess.run(command, input=PREADS.encode(), check=True)

    FOLDER.mkdir(exist_ok=True)
    preads = ctypes.CDLL(kept("preads.so", build)).preads
    from gristmill import _core

    file = _core.RecordFile(_path())
    # A chunk's record is what is left after the headers, but for block headers.
    begins = np.array([file.chunk(i)[1] - SIZE for i in range(RECORDS)])
    slots = np.empty((BATCH, SIZE), np.uint8)
    fd = os.open(_path(), os.O_RDONLY)

    def read(keys: np.ndarray) -> np.ndarray:
        at = begins[keys]
        if preads(
            fd,
            at.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(len(at)),
            slots.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(SIZE),
        ):
            raise OSError("a read was short")
        return slots

    return Measurement(_timed(read, settings).value)


QUESTION = Question(
    name="record_reader",
    text="the reader alone, 1 KiB uncompressed records into one array, 1 thread",
    unit="us/record",
    contestants={"gristmill": _gristmill, "wheel": _wheel, "pread": _pread},
    targets=(AtLeast(100, ("wheel",)), AtLeast(0.5, ("pread",))),
)

if __name__ == "__main__":
    main(QUESTION)
