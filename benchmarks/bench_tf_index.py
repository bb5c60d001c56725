"""Measures indexing a TFRecord file.

Prints ms per GB of the file, the fastest of five; lower is better, and 500 MB/s are
2000. 200,000 records of 1 KiB. "read" is ``read()`` of the whole file, 1 MiB at a time.
"load" opens the file when its index is already stored next to it.

    python benchmarks/bench_tf_index.py
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable

from harness import AtLeast, AtMost, Measurement, Question, Settings, main
from record_files import noise, tf_record

RECORDS = 200_000
TIMES = 5


def _measure(
    prepare: Callable[[str], Callable[[], object]], settings: Settings
) -> Measurement:
    count = settings.records or RECORDS
    path = tf_record(f"noise-{count}", lambda: noise(count))
    run = prepare(path)
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return Measurement(min(seconds) * 1e3 / (os.path.getsize(path) / 1e9))


def _index(path: str) -> Callable[[], object]:
    from gristmill.sources import TFRecordDataSource

    def make() -> None:
        # Use a new folder each time, so that the index does not exist yet.
        with tempfile.TemporaryDirectory() as folder:
            TFRecordDataSource(path, index_dir=folder).close()

    return make


def _load(path: str) -> Callable[[], object]:
    from gristmill.sources import TFRecordDataSource

    TFRecordDataSource(path)
    return lambda: TFRecordDataSource(path).close()


def _read(path: str) -> Callable[[], object]:
    buffer = bytearray(1 << 20)

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return read


QUESTION = Question(
    name="tf_index",
    text="TFRecord files: making the index of 200,000 records of 1 KiB",
    unit="ms/GB",
    contestants={
        "gristmill": functools.partial(_measure, _index),
        "load": functools.partial(_measure, _load),
        "read": functools.partial(_measure, _read),
    },
    targets=(AtMost(2000), AtLeast(0.5, ("read",))),
)

if __name__ == "__main__":
    main(QUESTION)
