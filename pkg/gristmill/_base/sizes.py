"""Estimates the memory size of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_SIZED = 64


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
        some = element[:MOST_SIZED]
        whole = sum(map(size_of, some))
        return whole * len(element) // max(len(some), 1)
    return 8 if isinstance(element, (bool, int, float)) else 0
