"""Writes the seeds of the fuzz targets, by the array-record wheel.

PYTHONPATH=tests python tests/fuzz/make_corpus.py
"""

import pathlib
import struct
import tempfile

import numpy as np
from array_record.python import array_record_module

from protobuf_samples import message

FOLDER = pathlib.Path(__file__).parent / "corpus" / "record_file"
BLOCK = 65536


def packed(file, flags):
    """Leave out the zeros before and in the last block, as record_file.cpp says."""
    front, back = file[:-BLOCK].rstrip(b"\0"), file[-BLOCK:].rstrip(b"\0")
    return struct.pack("<BBI", flags, 0, len(front)) + front + back


def written(options, records):
    with tempfile.NamedTemporaryFile() as file:
        writer = array_record_module.ArrayRecordWriter(file.name, options)
        for record in records:
            writer.write(record)
        writer.close()
        return pathlib.Path(file.name).read_bytes()


def main():
    rng = np.random.default_rng(0)
    raw = [rng.bytes(int(rng.integers(0, 60))) for _ in range(12)]
    messages = [message(rng) for _ in range(24)]
    cases = {
        "plain": ("group_size:1,uncompressed", raw),
        "plain_grouped": ("group_size:5,uncompressed", raw),
        "large": ("group_size:1,uncompressed", [b"", bytes(66_000), b"x"]),
        "zstd": ("group_size:4,zstd", raw),
        "snappy": ("group_size:4,snappy", raw),
        "brotli": ("group_size:4,brotli", raw),
        "brotli_single": ("group_size:1,brotli,window_log:30", raw[:3]),
        "transposed": ("group_size:8,uncompressed,transpose", messages),
        "transposed_single": ("group_size:1,uncompressed,transpose", messages[:5]),
        "transposed_raw": ("group_size:6,uncompressed,transpose", raw),
        "transposed_zstd": ("group_size:12,zstd,transpose", messages),
        "none": ("group_size:1", []),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    for flags, (name, (options, records)) in enumerate(cases.items()):
        (FOLDER / name).write_bytes(packed(written(options, records), flags & 1))


if __name__ == "__main__":
    main()
