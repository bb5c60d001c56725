"""Bytes packed into int64, for positions and requests that hold more than numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gristmill._base.types import Int64Array


def pack_int64(data: bytes) -> Int64Array:
    """Pack bytes as int64, shape (1 + n,): how many they are, and the bytes."""
    packed = np.frombuffer(data + bytes(-len(data) % 8), np.int64)
    return np.concatenate([[len(data)], packed])


def unpack_int64(packed: Sequence[int] | Int64Array) -> bytes:
    """Return the bytes that `pack_int64` was given."""
    numbers = np.asarray(packed, np.int64)
    return numbers[1:].tobytes()[: int(numbers[0])]
