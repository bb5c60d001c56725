"""Reference implementations of packed rows, in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np


def pieces_of(lengths: list[int], capacity: int, long_documents: str) -> Any:
    """Return (document, begin, end) of each piece to pack, in order."""
    pieces = []
    for document, length in enumerate(lengths):
        if length > capacity and long_documents == "drop":
            continue
        for begin in range(0, length, capacity):
            pieces.append((document, begin, min(begin + capacity, length)))
    return pieces


def fills_of(method: str, pieces: Any, capacity: int) -> list[int]:
    """Return the used cells of each row if all pieces are in one window."""
    sizes = [end - begin for _, begin, end in pieces]
    if method == "split":
        total = sum(sizes)
        return [capacity] * (total // capacity) + [total % capacity] * (
            total % capacity > 0
        )
    if method != "first_fit":
        sizes.sort(reverse=True)
    fills: list[int] = []
    for size in sizes:
        rows = [row for row, fill in enumerate(fills) if fill + size <= capacity]
        if not rows:
            fills.append(size)
        elif method == "best_fit":
            fills[max(rows, key=lambda row: fills[row])] += size
        else:  # First fit, or first fit decreasing.
            fills[rows[0]] += size
    return fills


def row_of(documents: Any, spans: Any, capacity: int, padding: int = 0) -> Any:
    """Return the row that is made of some spans, (document, begin, end)."""
    parts = [documents[document][begin:end] for document, begin, end in spans]
    sizes = [len(part) for part in parts]
    rest = capacity - sum(sizes)

    def row(cells: Any, value: int, dtype: Any) -> Any:
        return np.array([*np.concatenate(cells), *[value] * rest], dtype)

    return {
        "tokens": row(parts, padding, parts[0].dtype),
        "tokens_segment_ids": row(
            [[i] * size for i, size in enumerate(sizes, start=1)], 0, np.int32
        ),
        "tokens_positions": row([np.arange(size) for size in sizes], 0, np.int32),
        "tokens_loss_mask": row(
            [[False] + [True] * (size - 1) for size in sizes], False, np.bool_
        ),
    }
