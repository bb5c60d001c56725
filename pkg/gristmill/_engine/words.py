"""Bytes as integers, for positions and requests that hold more than numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gristmill._base.types import Int64Array


def as_words(data: bytes) -> Int64Array:
    """Bytes as int64, shape (1 + n,): how many they are, and the bytes."""
    words = np.frombuffer(data + bytes(-len(data) % 8), np.int64)
    return np.concatenate([[len(data)], words])


def from_words(words: Sequence[int] | Int64Array) -> bytes:
    """The bytes that `as_words` was given."""
    numbers = np.asarray(words, np.int64)
    return numbers[1:].tobytes()[: int(numbers[0])]
