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
    target = record_files.FOLDER / "far"
    if not target.exists():
        unfinished = pathlib.Path(f"{target}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        _write(unfinished)
        unfinished.rename(target)
    for path in target.iterdir():  # Read into the page cache.
        path.read_bytes()
    return target


def _write(target: pathlib.Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    path = str(target / "records.array_record")
    writer = ArrayRecordWriter(path, "group_size:1,uncompressed")
    all_records = records()
    for number in range(SHARDS):
        with tarfile.open(target / f"shard-{number}.tar", "w") as shard:
            shard_records = itertools.islice(all_records, RECORDS // SHARDS)
            for position, record in enumerate(shard_records):
                writer.write(record)
                info = tarfile.TarInfo(f"{number}-{position:06d}.bin")
                info.size = len(record)
                shard.addfile(info, io.BytesIO(record))
    writer.close()
