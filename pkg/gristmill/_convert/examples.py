"""Writes tf.train.Example messages, without TensorFlow or protobuf.

A feature is encoded from its values, and an example from its encoded features, so
that a table can be encoded column by column.  The values of all rows are concatenated,
and row k has the values from ``limits[k]`` to ``limits[k + 1]``.  Without limits there
is one row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from gristmill._base.types import Int64Array

# The numbers of a Feature's fields.
BYTES, FLOAT, INT64 = 1, 2, 3


def bytes_features(
    name: str, values: Sequence[bytes], limits: Sequence[int] | None = None
) -> list[bytes]:
    """Return a feature of byte strings for each row."""
    fields = [_field(1, value) for value in values]
    rows = itertools.pairwise(limits or [0, len(fields)])
    return _entries(name, BYTES, [b"".join(fields[begin:end]) for begin, end in rows])


def float_features(
    name: str, values: npt.ArrayLike, limits: Sequence[int] | None = None
) -> list[bytes]:
    """Return a feature of floats for each row, rounded to 32 bits by the format."""
    with np.errstate(over="ignore"):  # Values that are too large become inf.
        packed = np.asarray(values, np.float64).astype("<f4").tobytes()
    limits = limits or [0, len(packed) // 4]
    byte_limits = [4 * limit for limit in limits]
    return _entries(name, FLOAT, _packed_fields(packed, byte_limits))


def int64_features(
    name: str, values: npt.ArrayLike, limits: Sequence[int] | None = None
) -> list[bytes]:
    """Return a feature of integers for each row.

    Raises:
        OverflowError: A value does not fit 64 bits with a sign.
    """
    packed, ends = _varints(np.asarray(values, np.int64))
    limits = limits or [0, len(ends)]
    byte_limits = np.concatenate([[0], ends])[np.asarray(limits)].tolist()
    return _entries(name, INT64, _packed_fields(packed, byte_limits))


def example(features: Iterable[bytes]) -> bytes:
    """Return the tf.train.Example with these encoded features."""
    return _field(1, b"".join(features))


def _packed_fields(values: bytes, limits: Sequence[int]) -> list[bytes]:
    """Return the packed field of each row; `limits` are offsets in `values`."""
    return [_field(1, values[begin:end]) for begin, end in itertools.pairwise(limits)]


def _entries(name: str, kind: int, rows: Iterable[bytes]) -> list[bytes]:
    """Return the map entry of feature `name` for each row of encoded values."""
    key = _field(1, name.encode())
    return [_field(1, key + _field(2, _field(kind, values))) for values in rows]


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message: its number, the size and the content."""
    size = len(content)
    if size < 0x80:
        return bytes((number << 3 | 2, size)) + content
    head = bytearray((number << 3 | 2,))
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + content


def _varints(values: Int64Array) -> tuple[bytes, Int64Array]:
    """Return the concatenated varints of integers, and the offset of each one's end."""
    remaining = values.view(np.uint64)
    # Each integer has up to `places` groups of 7 bits, the lowest first.
    places = max(1, -(-int(remaining.max(initial=0)).bit_length() // 7))
    septets = np.empty((len(values), places), np.uint8)
    used = np.empty((len(values), places), np.bool_)
    for place in range(places):
        used[:, place] = (remaining != 0) if place else True
        septets[:, place] = remaining & np.uint64(0x7F)
        remaining = remaining >> np.uint64(7)
    septets[:, :-1] |= used[:, 1:].astype(np.uint8) << np.uint8(7)
    return septets[used].tobytes(), np.cumsum(used.sum(axis=1))
