"""A model of gristmill._hot.run.run_block in plain Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill._hot.error_location import ErrorLocation
from gristmill._hot.run import reads_together
from gristmill._hot.steps import FILTER, MAP, RANDOM_MAP

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
    """Return ``(elements, kept, consumed, error)``, like the compiled function."""
    told = ctypes.c_int64.from_address(at) if at else ctypes.c_int64()
    out: list[Any] = []
    kept: list[int] = []
    records = elements
    if records is None:
        records = read_all(source, keys.tolist())
    for i, (key, index) in enumerate(zip(keys.tolist(), indices.tolist(), strict=True)):
        told.value = key
        doing: list[str | None] = [None]
        try:
            element = source[key] if records is None else records[i]
            element = apply(element, index, steps, draws, doing)
        except Exception as error:
            error.add_note(ErrorLocation(doing[0], key, index))
            return out, None if len(kept) == i else kept, i + 1, error
        if element is not DROPPED:
            out.append(element)
            kept.append(i)
    return out, None if len(kept) == len(keys) else kept, len(keys), None


def apply(
    element: Any, index: int, steps: Steps, draws: Any, doing: list[str | None]
) -> Any:
    """Apply the steps to a record; store the name of the current step in `doing`."""
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


def read_all(source: Any, keys: list[int]) -> list[Any] | None:
    """Return all records, or None if the source reads one at a time or one fails."""
    if not keys or not reads_together(type(source)):
        return None
    try:
        return list(source.__getitems__(keys))
    except Exception:
        return None
