"""A reference implementation of rows of documents with lengths by feature."""

from __future__ import annotations

from typing import Any

import numpy as np


def pieces_of(lengths: Any, capacities: Any, long_documents: str) -> Any:
    """Return ((document, begin, end), lengths by feature) of each piece, in order.

    `lengths` has the lengths of each document, those of the first feature first.
    """
    pieces = []
    for document, (tokens, *extras) in enumerate(lengths):
        sizes = (tokens, *extras)
        is_long = any(n > most for n, most in zip(sizes, capacities, strict=True))
        if not any(sizes) or (is_long and long_documents == "drop"):
            continue
        for begin in range(0, max(tokens, 1), capacities[0]):
            end = min(begin + capacities[0], tokens)
            own = extras if begin == 0 else [0] * len(extras)
            pieces.append(((document, begin, end), np.array([end - begin, *own])))
    return pieces


def rows_of(method: str, pieces: Any, capacities: Any) -> Any:
    """Return the spans of each row if all pieces are in one window."""
    capacities = np.array(capacities)
    rows: list[Any] = []
    if method == "first_fit":
        rooms: list[Any] = []
        for span, sizes in pieces:
            row = next((i for i, room in enumerate(rooms) if (sizes <= room).all()), -1)
            if row < 0:
                rows.append([])
                rooms.append(capacities.copy())
            rows[row].append(span)
            rooms[row] -= sizes
        return rows
    left = list(pieces)
    while left:
        row_spans, room = [], capacities.copy()
        while fitting := [piece for piece in left if (piece[1] <= room).all()]:
            needed = sum(sizes for _, sizes in left) / capacities
            feature = int(needed.argmax())
            longest = max(fitting, key=lambda piece: piece[1][feature])
            left = [piece for piece in left if piece is not longest]
            row_spans.append(longest[0])
            room -= longest[1]
        rows.append(sorted(row_spans))
    return rows


def split_rows_of(lengths: Any, capacities: Any, long_documents: str) -> Any:
    """Return the spans of each row of method "split"."""
    rows: list[Any] = []
    room = np.zeros(len(capacities), int)
    for document, sizes in enumerate(lengths):
        is_long = any(n > most for n, most in zip(sizes, capacities, strict=True))
        if not any(sizes) or (is_long and long_documents == "drop"):
            continue
        begin, extras = 0, np.array(sizes[1:])
        while True:
            tokens = sizes[0] - begin
            if not rows or (tokens and not room[0]) or (extras > room[1:]).any():
                rows.append([])
                room = np.array(capacities)
            end = begin + min(tokens, room[0])
            rows[-1].append((document, begin, end))
            room -= [end - begin, *extras]
            begin, extras = end, np.zeros_like(extras)
            if begin == sizes[0]:
                break
    return rows


def row_of(documents: Any, spans: Any, capacities: Any, paddings: Any) -> Any:
    """Return the row that is made of some spans of documents, dicts of arrays.

    `capacities` has the features in the order of `pieces_of`.
    """
    row = {}
    main = next(iter(capacities))
    for name, capacity in capacities.items():
        parts = [
            documents[document][name][begin:end]
            if name == main
            else documents[document][name][: None if begin == 0 else 0]
            for document, begin, end in spans
        ]
        cells = np.concatenate(parts)
        values = np.full((capacity, *cells.shape[1:]), paddings[name], cells.dtype)
        values[: len(cells)] = cells
        numbers = np.zeros((2, capacity), np.int32)
        sizes = [len(part) for part in parts]
        numbers[0, : len(cells)] = np.repeat(np.arange(len(parts)) + 1, sizes)
        numbers[1, : len(cells)] = np.concatenate([np.arange(size) for size in sizes])
        row[name] = values
        row[f"{name}_segment_ids"], row[f"{name}_positions"] = numbers
    mask = (row[f"{main}_segment_ids"] > 0) & (row[f"{main}_positions"] > 0)
    row[f"{main}_loss_mask"] = mask
    return row
