"""The files of the far benchmarks: records of 71 KB, as ArrayRecord and as tar."""

import io
import itertools
import os
import pathlib
import tarfile
from collections.abc import Iterator

import numpy as np

import record_files
from workloads import SEED

RECORDS = 4096
RECORD_BYTES = 71_000
SHARDS = 8
BATCH = 64


def records() -> Iterator[bytes]:
    """Yields records of 71,000 random bytes, like compressed pictures."""
    rng = np.random.default_rng(SEED)
    for _ in range(RECORDS):
        yield rng.bytes(RECORD_BYTES)


def folder() -> pathlib.Path:
    """Returns the folder with the file and the shards, and makes it if needed."""
    made = record_files.FOLDER / "far"
    if not made.exists():
        half = pathlib.Path(f"{made}.{os.getpid()}")
        half.mkdir(parents=True)
        _write(half)
        half.rename(made)
    for path in made.iterdir():
        path.read_bytes()
    return made


def _write(half: pathlib.Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    path = str(half / "records.array_record")
    writer = ArrayRecordWriter(path, "group_size:1,uncompressed")
    every = records()
    for number in range(SHARDS):
        with tarfile.open(half / f"shard-{number}.tar", "w") as shard:
            for at, record in enumerate(itertools.islice(every, RECORDS // SHARDS)):
                writer.write(record)
                info = tarfile.TarInfo(f"{number}-{at:06d}.bin")
                info.size = len(record)
                shard.addfile(info, io.BytesIO(record))
    writer.close()
