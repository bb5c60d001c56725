"""Writes the seeds of the fuzz targets, by the array-record wheel and by hand.

PYTHONPATH=tests python tests/fuzz/make_corpus.py
"""

import pathlib
import struct
import tempfile

import crc32c
import numpy as np
from array_record.python import array_record_module

from protobuf_samples import message

CORPUS = pathlib.Path(__file__).parent / "corpus"
FOLDER = CORPUS / "record_file"
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


def checksum(data):
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data):
    length = struct.pack("<Q", len(data))
    head = length + struct.pack("<I", checksum(length))
    return head + data + struct.pack("<I", checksum(data))


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def tf_record(flags, records, sidecar=True):
    """Put a sidecar and a file together, as tf_record.cpp says."""
    file = b"".join(framed(record) for record in records)
    index = b""
    if sidecar:
        sizes = b"".join(varint(len(record)) for record in records)
        body = struct.pack("<QqQ", len(file), 1_000_000_000, len(records)) + sizes
        index = struct.pack("<8sII", b"GRISTMTF", 1, crc32c.crc32c(body)) + body
    return struct.pack("<BH", flags, len(index)) + index + file


def write_tf_records(rng):
    raw = [rng.bytes(int(rng.integers(0, 60))) for _ in range(12)]
    cases = {
        "few": raw,
        "many": [b"x" * (i % 5) for i in range(150)],
        "large": [b"", rng.bytes(3000), rng.bytes(200), bytes(20_000)],
        "empty": [b"", b"", b""],
        "none": [],
    }
    folder = CORPUS / "tf_record"
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in cases.items():
        for how, (flags, sidecar) in {
            "loaded": (0b10010, True),
            "loaded_mapped": (0b10001, True),
            "scanned": (0b01010, False),
            "scanned_mapped": (0b01101, False),
        }.items():
            seed = tf_record(flags, records, sidecar)
            (folder / f"{name}_{how}").write_bytes(seed)


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
    write_tf_records(rng)


if __name__ == "__main__":
    main()
