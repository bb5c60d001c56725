"""Measures opening many files of a million records and reading one record.

Prints ms; lower is better. The files are 64 names of one file, which is in the page
cache. The first time, when Gristmill makes its indices, does not count. Each run opens
all files and reads a record in the middle.

    python benchmarks/bench_many_shards.py
"""

import functools
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import peers
import record_open
from harness import AtMost, Measurement, Question, Settings, main

SHARDS = 64


def _shards(settings: Settings) -> list[str]:
    one = pathlib.Path(record_open.path(settings))
    names = (f"{one.name}-{i:05d}-of-{SHARDS:05d}" for i in range(SHARDS))
    paths = [one.with_name(name) for name in names]
    for path in paths:
        if not path.exists():
            os.link(one, path)
    return [str(path) for path in paths]


def _measure(importer: Callable[[], Any], settings: Settings) -> Measurement:
    source_of = importer().sources.ArrayRecordDataSource
    paths = _shards(settings)
    _read(source_of, paths)
    start = time.perf_counter()
    record = _read(source_of, paths)
    seconds = time.perf_counter() - start
    return Measurement(seconds * 1e3, {"record": record.hex()})


def _read(source_of: Callable[[list[str]], Any], paths: list[str]) -> bytes:
    source = source_of(paths)
    return bytes(source[len(source) // 2 + 7])


QUESTION = Question(
    name="many_shards",
    text="64 files of 1 M records: opening them and reading one",
    unit="ms",
    contestants={
        "gristmill": functools.partial(_measure, peers.import_gristmill),
        "grain": functools.partial(_measure, peers.import_grain),
    },
    targets=(AtMost(0.05, "grain"),),
)

if __name__ == "__main__":
    main(QUESTION)
