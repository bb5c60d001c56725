"""Reads records and runs the user's steps.  The twin of ``gristmill._hot.run``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._hot.place import Place

MAP, RANDOM_MAP, MAP_WITH_INDEX, FILTER = range(4)
Steps = tuple[tuple[int, Callable[..., Any], str], ...]
DROPPED = object()


def run_block(
    source: Any,
    keys: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    steps: Steps,
    draws: Any,
    at: int,
    elements: list[Any] | None = None,
) -> tuple[list[Any], list[int] | None, int, Exception | None]:
    """Return ``(elements, kept, consumed, error)`` for a block of n records.

    See ``gristmill._hot.run.run_block``.
    """
    for array in (keys, indices):
        if array.dtype != np.int64 or array.ndim != 1:
            raise TypeError(
                "keys and indices must be contiguous int64 arrays of shape (n,)"
            )
    told = ctypes.c_int64.from_address(at) if at else ctypes.c_int64()
    n = len(keys) if elements is None else len(elements)
    if (len(keys), len(indices)) != (n, n):
        got = len(keys) if len(keys) != n else len(indices)
        raise ValueError(f"expected {n} keys and indices, got {got}")
    out: list[Any] = []
    kept: list[int] = []
    records = elements
    if records is None:
        told.value = int(keys[0]) if n else 0
        try:
            records = _read_all(source, keys.tolist())
        except ValueError as error:
            # No record is to blame: what remains of the place is the text.
            error.add_note(str(Place(None, keys[0], indices[0])))
            return out, None, 1, error
    for i, (key, index) in enumerate(zip(keys.tolist(), indices.tolist(), strict=True)):
        told.value = key
        doing: list[str | None] = [None]
        try:
            element = source[key] if records is None else records[i]
            element = _apply(element, index, steps, draws, doing)
        except Exception as error:
            error.add_note(Place(doing[0], key, index))
            return out, None if len(kept) == i else kept, i + 1, error
        if element is not DROPPED:
            out.append(element)
            kept.append(i)
    return out, None if len(kept) == n else kept, n, None


def _apply(
    element: Any, index: int, steps: Steps, draws: Any, doing: list[str | None]
) -> Any:
    generator = None
    for opcode, call, name in steps:
        doing[0] = name
        if opcode == MAP:
            element = call(element)
        elif opcode == FILTER:
            if not call(element):
                return DROPPED
        elif opcode == RANDOM_MAP:
            if generator is None and draws is not None:
                generator = draws.at(index)
            element = call(element, generator)
        else:
            element = call(index, element)
    return element


def reads_together(kind: type) -> bool:
    """Whether ``__getitems__`` stands for ``__getitem__``."""
    for cls in kind.__mro__:
        if "__getitems__" in vars(cls):
            return True
        if "__getitem__" in vars(cls):
            return False
    return False


def _read_all(source: Any, keys: list[int]) -> list[Any] | None:
    """All records at once, or None if the source cannot or one of them fails."""
    if not keys or not reads_together(type(source)):
        return None
    try:
        records = list(source.__getitems__(keys))
    except Exception:
        return None
    if len(records) != len(keys):
        raise ValueError(
            f"{type(source).__name__}.__getitems__ returned {len(records)} records"
            f" for {len(keys)} keys"
        )
    return records
