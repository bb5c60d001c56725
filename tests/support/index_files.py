"""Writes indices of data files, valid or not, as described in docs/formats/index.md."""

import struct

import crc32c

GROUP = 64


def of_tf_record(nbytes, version, begins, end):
    """Return a TFRecord file's index, from the offsets of its records and its end."""
    groups, packed = b"", b""
    for first in range(0, len(begins), GROUP):
        group = begins[first : first + GROUP]
        width = -(-(group[-1] - group[0]).bit_length() // 8)
        groups += struct.pack("<Q", group[0])
        groups += len(packed).to_bytes(6, "little") + bytes([width, 0])
        packed += b"".join((at - group[0]).to_bytes(width, "little") for at in group)
    groups += struct.pack("<Q", end) + len(packed).to_bytes(6, "little") + bytes(2)
    kind = int.from_bytes(b"tfr1", "little")
    numbers = nbytes, version, kind, len(begins), 1, len(begins), end, 0
    body = struct.pack("<8Q", *numbers) + groups + packed + bytes(8)
    return struct.pack("<8sII", b"GRISTMIX", 1, crc32c.crc32c(body)) + body
