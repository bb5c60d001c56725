"""Random protocol buffers, encoded by hand, for tests of transposed chunks."""

import struct


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(rng, depth=2):
    """Return a message with fields of every wire type, some of them repeated."""
    out = b""
    for _ in range(int(rng.integers(0, 8))):
        field, kind = int(rng.integers(1, 40)), int(rng.integers(0, 7))
        tag = field * 8
        if kind == 0:
            out += varint(tag) + varint(int(rng.integers(0, 200)))
        elif kind == 1:
            bits = int(rng.integers(1, 65))
            out += varint(tag) + varint(int(rng.integers(0, 1 << 63)) * 2 >> 64 - bits)
        elif kind == 2:
            out += varint(tag + 1) + struct.pack("<d", rng.random())
        elif kind == 3:
            out += varint(tag + 5) + struct.pack("<f", rng.random())
        elif kind == 4:
            text = rng.bytes(int(rng.integers(0, 200)))
            out += varint(tag + 2) + varint(len(text)) + text
        elif kind == 5 and depth:
            inner = message(rng, depth - 1)
            out += varint(tag + 2) + varint(len(inner)) + inner
        elif kind == 6 and depth:
            out += varint(tag + 3) + message(rng, depth - 1) + varint(tag + 4)
    return out
