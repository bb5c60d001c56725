"""Estimates the memory size of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_SIZED_ITEMS = 64


def size_of(element: Any) -> int:
    """Estimate the bytes in an element's arrays, texts and numbers.

    The size of a long list is extrapolated from its first items.
    """
    if isinstance(element, (np.ndarray, np.generic)):
        return element.nbytes
    if isinstance(element, (bytes, bytearray, memoryview, str)):
        return len(element)
    if isinstance(element, dict):
        element = list(element.values())
    if isinstance(element, (list, tuple)):
        sample = element[:MAX_SIZED_ITEMS]
        sample_bytes = sum(map(size_of, sample))
        return sample_bytes * len(element) // max(len(sample), 1)
    return 8 if isinstance(element, (bool, int, float)) else 0
