"""Writes the seeds of the fuzz targets, with record files by the array-record wheel.

PYTHONPATH=tests python tests/fuzz/make_corpus.py
"""

import io
import itertools
import pathlib
import struct
import tarfile
import tempfile

import crc32c
import numpy as np
import PIL.Image
from array_record.python import array_record_module

from support import index_files
from support.example_samples import (
    bytes_list,
    entry,
    example,
    field,
    float_list,
    int_list,
    varint,
)
from support.protobuf_samples import message

CORPUS = pathlib.Path(__file__).parent / "corpus"
BLOCK = 65536


def packed(file, flags):
    """Strip zeros before and in the last block, in the format of record_file.cpp."""
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


def with_index(flags, records, indexed):
    """Join an index and a TFRecord file, in the format of tf_record.cpp."""
    frames = [framed(record) for record in records]
    file = b"".join(frames)
    index = b""
    if indexed:
        begins = list(itertools.accumulate(map(len, frames), initial=0))[:-1]
        index = index_files.of_tf_record(len(file), 1_000_000_000, begins, len(file))
    return struct.pack("<BH", flags, len(index)) + index + file


def tf_records():
    rng = np.random.default_rng(1)
    contents = {
        "few": [rng.bytes(int(rng.integers(0, 60))) for _ in range(12)],
        "many": [b"x" * (i % 5) for i in range(150)],
        "large": [b"", rng.bytes(3000), rng.bytes(200), bytes(20_000)],
        "empty": [b"", b"", b""],
        "none": [],
    }
    kinds = {
        "loaded": (0b10010, True),
        "loaded_mapped": (0b10001, True),
        "scanned": (0b01010, False),
        "scanned_mapped": (0b01101, False),
    }
    return {
        f"{name}_{kind}": with_index(flags, records, indexed)
        for name, records in contents.items()
        for kind, (flags, indexed) in kinds.items()
    }


def tars():
    rng = np.random.default_rng(2)
    members = {
        "few": ["d/0.a", "d/0.B", "d/1.a"],
        "long": ["n" * 150 + ".a", "\u00e9" * 60 + ".b", "0.a"],
        "twice": ["0.a", "0.A", "__x__/1.a", "2"],
    }
    seeds = {}
    for name, names in members.items():
        for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            if name == "long" and kind == tarfile.USTAR_FORMAT:
                continue
            file = io.BytesIO()
            with tarfile.open(fileobj=file, mode="w", format=kind) as tar:
                for number, path in enumerate(names):
                    member = tarfile.TarInfo(path)
                    member.size = 300 * number
                    tar.addfile(member, io.BytesIO(rng.bytes(member.size)))
            packed = file.getvalue().rstrip(b"\0") + bytes(1100)
            flags = 2 + (kind == tarfile.PAX_FORMAT)
            seeds[f"{name}_{kind}"] = bytes([flags]) + packed
    return seeds


def bags():
    hello, unknown = (
        b"(\xb5/\xfd \x05)\0\0hello",
        b"(\xb5/\xfd\0\0M\0\0\x10qq\x01\0\xef*\xc0\x02",
    )
    contents = {"plain": (0, [b"one", b"", b"three"]), "none": (1, [])}
    contents["zstd"] = (4, [hello, b"", unknown, hello])
    seeds = {}
    for name, (flags, records) in contents.items():
        ends = np.cumsum([len(record) for record in records], dtype="<u8").tobytes()
        data = b"".join(records)
        seeds[name] = struct.pack("<BH", flags, 0) + data + ends
        separate = struct.pack("<BH", flags | 2, len(ends))
        seeds[f"{name}_separate"] = separate + ends + data
    return seeds


def megatron_data_sets():
    lengths = np.array([3, 1, 0, 40], "<i4")
    places = np.array([0, 6, 8, 8], "<i8")
    documents = np.array([0, 2, 2, 4], "<i8")
    modes = np.array([0, 1, 0, 1], np.int8)
    tokens = np.arange(44, dtype="<u2").tobytes()
    seeds = {}
    for name, counts in (("plain", b""), ("modes", modes.tobytes()), ("none", None)):
        head = b"MMIDIDX\0\0" + struct.pack("<QB", 1, 8)
        if counts is None:
            index = head + struct.pack("<QQQ", 0, 1, 0)
        else:
            index = head + struct.pack("<QQ", 4, 4) + lengths.tobytes()
            index += places.tobytes() + documents.tobytes() + counts
        for flags in range(4):
            begin = struct.pack("<BH", flags, len(index))
            seeds[f"{name}_{flags}"] = begin + index + tokens
    return seeds


def write(target, seeds):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, seed in seeds.items():
        (folder / name).write_bytes(seed)


def record_files():
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
    return {
        name: packed(written(options, records), flags & 1)
        for flags, (name, (options, records)) in enumerate(cases.items())
    }


def examples():
    rng = np.random.default_rng(0)
    label = ("label", int_list(-7))
    x = ("x", float_list(1.5, -2.0, 65519.9))
    tokens = ("tokens", int_list(*rng.integers(0, 2**40, 40)))
    small = ("lengths", int_list(*rng.integers(0, 128, 20)))
    name = ("name", bytes_list(b"a\0b"))
    parts = ("parts", bytes_list(b"", b"xyz", rng.bytes(40)))
    plain = b"".join(varint(1 << 3) + varint(value) for value in (1, 300, -1))
    pieces = int_list(1, 2) + field(2, b"") + field(3, plain) + int_list(2**62)
    twice = field(1, field(2, int_list(1)) + field(1, b"x") + field(2, int_list(2)))
    unknown = varint(9 << 3 | 1) + bytes(8) + varint(7 << 3 | 5) + bytes(4)
    return {
        "empty": b"",
        "whole": example(label, x, tokens, name, parts, small),
        "block": 2 * example(("x", float_list(1, 2, 3)), label),
        "in_pieces": example(("tokens", pieces), x) + example(label),
        "twice": field(1, twice + entry("x", b"") + twice) + example(label, label),
        "unknown": unknown + field(1, unknown + entry("x", unknown + int_list(3))),
        "no_kind": example(("label", b""), ("", int_list()), ("x", float_list())),
    }


def pictures():
    rng = np.random.default_rng(0)
    pixels = PIL.Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    kinds = {
        "whole": {"subsampling": 0},
        "halved": {"subsampling": 1, "exif": exif},
        "quartered": {"subsampling": 2, "restart_marker_blocks": 2},
        "progressive": {"progressive": True},
        "gray": {"mode": "L"},
        "gray_progressive": {"mode": "L", "progressive": True},
    }
    files = {}
    for name, options in kinds.items():
        file = io.BytesIO()
        image = pixels.resize((37, 21)).convert(options.pop("mode", "RGB"))
        image.save(file, "JPEG", quality=60, optimize=True, **options)
        files[name] = file.getvalue()
    return files


def window_ends():
    # The fuzz target corrects the checksum and the key.
    head = b"GRISTMWE" + struct.pack("<IIQ", 1, 0, 7)
    ends = {"none": [], "one": [5], "several": [3, 3, 8, 1 << 40]}
    return {name: head + struct.pack(f"<{len(of)}q", *of) for name, of in ends.items()}


def main():
    write("record_file", record_files())
    write("example", examples())
    write("images", pictures())
    write("tf_record", tf_records())
    write("tar", tars())
    write("bag", bags())
    write("megatron", megatron_data_sets())
    write("window_ends", window_ends())


if __name__ == "__main__":
    main()
