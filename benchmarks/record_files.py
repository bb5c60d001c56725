"""Files of records for the benchmarks, written once and kept in the temporary folder.

The page cache is warm during measurements: files were just written or read.
"""

import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from workloads import SEED

FOLDER = pathlib.Path(tempfile.gettempdir()) / "gristmill-benchmarks"
TOKENS = 256


def tokens(count: int) -> Iterator[bytes]:
    """Yields records of 256 zipf(1.3) int32, about 2.4 times compressible."""
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        ids = np.minimum(rng.zipf(1.3, TOKENS), 2**31 - 1)
        yield ids.astype(np.int32).tobytes()


def noise(count: int) -> Iterator[bytes]:
    """Yields records of 1 KiB of random bytes."""
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        yield rng.bytes(4 * TOKENS)


def pictures(count: int) -> Iterator[bytes]:
    """Yields records of 100,000 random bytes, like compressed pictures."""
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        yield rng.bytes(100_000)


def cached_file(name: str, write: Callable[[str], None]) -> str:
    """Returns the path of a file of this name, made by ``write`` if needed.

    Reads the file, so that it is in the page cache.
    """
    path = FOLDER / name
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        unfinished = f"{path}.{os.getpid()}"
        write(unfinished)
        os.replace(unfinished, path)
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass
    return str(path)


def array_record(
    name: str, options: str, records: Callable[[], Iterator[bytes]]
) -> str:
    """Returns the path of an ArrayRecord file, written by the array_record package."""
    from array_record.python.array_record_module import ArrayRecordWriter

    def write(path: str) -> None:
        writer = ArrayRecordWriter(path, options)
        for record in records():
            writer.write(record)
        writer.close()

    return cached_file(f"{name}.array_record", write)


def tf_record(name: str, records: Callable[[], Iterator[bytes]]) -> str:
    """Returns the path of an uncompressed TFRecord file."""
    import crc32c

    def checksum(data: bytes) -> bytes:
        crc = crc32c.crc32c(data)
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        return masked.to_bytes(4, "little")

    def write(path: str) -> None:
        with open(path, "wb") as file:
            for record in records():
                length = len(record).to_bytes(8, "little")
                file.write(length + checksum(length) + record + checksum(record))

    return cached_file(f"{name}.tfrecord", write)
