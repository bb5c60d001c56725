"""Reads records by one system call each, in C: a limit for readers of record files."""

import ctypes
import os
import subprocess
from collections.abc import Callable

import numpy as np

from record_files import FOLDER, cached_file

SOURCE = """
#include <stdint.h>
#include <unistd.h>
int preads(int fd, const int64_t* at, int64_t count, char* out, int64_t size) {
  for (int64_t i = 0; i < count; ++i)
    if (pread(fd, out + i * size, size, at[i]) != size) return -1;
  return 0;
}
"""


def _build(path: str) -> None:
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", path]
    subprocess.run(command, input=SOURCE.encode(), check=True)


def reader_of(path: str, records: int, size: int) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that reads records of an ArrayRecord file into reused memory.

    Args:
        path: A file of uncompressed chunks of one record each.
        records: Number of records in the file.
        size: Bytes of each record. Chunks larger than a block of 64 KiB contain block
            headers, which are read in place of as many bytes.
    """
    FOLDER.mkdir(exist_ok=True)
    preads = ctypes.CDLL(cached_file("preads.so", _build)).preads
    from gristmill import _core

    file = _core.RecordFile(path)
    # The record follows the headers of its chunk.
    begins = np.array([file.chunk(i)[1] - size for i in range(records)])
    fd = os.open(path, os.O_RDONLY)
    buffer = np.empty((0, size), np.uint8)

    def read(keys: np.ndarray) -> np.ndarray:
        nonlocal buffer
        if len(buffer) < len(keys):
            buffer = np.ones((len(keys), size), np.uint8)
        offsets = begins[keys]
        if preads(
            fd,
            offsets.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(len(offsets)),
            buffer.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(size),
        ):
            raise OSError("a read was short")
        return buffer[: len(keys)]

    return read
