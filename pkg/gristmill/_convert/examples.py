"""Writes tf.train.Example messages, without TensorFlow or protobuf.

A feature is encoded from its values, and an example from its encoded features, so
that a table can be encoded column by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["bytes_feature", "example", "float_feature", "int64_feature"]

# Fewer integers than this are encoded one by one.
FEW = 16


def bytes_feature(name: str, values: Iterable[bytes]) -> bytes:
    """Return a feature of byte strings."""
    items = b"".join(_field(1, value) for value in values)
    return _entry(name, _field(1, items))


def float_feature(
    name: str, values: Sequence[float] | npt.NDArray[np.float32]
) -> bytes:
    """Return a feature of floats, rounded to 32 bits as the format has no others."""
    with np.errstate(over="ignore"):  # Too large a number becomes inf, as in a cast.
        packed = np.asarray(values, dtype="<f4").tobytes()
    return _entry(name, _field(2, _field(1, packed)))


def int64_feature(name: str, values: Sequence[int] | npt.NDArray[np.int64]) -> bytes:
    """Return a feature of integers.

    Raises:
        OverflowError: A value does not fit 64 bits with a sign.
    """
    if len(values) < FEW:
        packed = b"".join(_varint_of_int64(int(value)) for value in values)
    else:
        packed = _varints(np.asarray(values, dtype=np.int64))
    return _entry(name, _field(3, _field(1, packed)))


def example(features: Iterable[bytes]) -> bytes:
    """Return the message that has these encoded features."""
    return _field(1, b"".join(features))


def _entry(name: str, feature: bytes) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, feature))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_of_int64(value: int) -> bytes:
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} does not fit 64 bits with a sign")
    return _varint(value & (2**64 - 1))


def _varints(values: npt.NDArray[np.int64]) -> bytes:
    """Return the varints of many integers, one after the other."""
    left = values.view(np.uint64)
    septets = np.empty((len(values), 10), np.uint8)
    used = np.empty((len(values), 10), np.bool_)
    for place in range(10):
        used[:, place] = (left != 0) if place else True
        septets[:, place] = left & np.uint64(0x7F)
        left = left >> np.uint64(7)
    septets[:, :-1] |= used[:, 1:].astype(np.uint8) << np.uint8(7)
    return septets[used].tobytes()
