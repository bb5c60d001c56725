"""Copies of iterators' states."""

from __future__ import annotations

import copy
from typing import Any

_FIXED = frozenset({int, str, float, bool, bytes, type(None)})


def copied(state: Any) -> Any:
    """A copy of a state that shares nothing that could change: `copy.deepcopy`, faster.

    Args:
        state: Mostly dicts, lists and numbers.
    """
    kind = type(state)
    if kind in _FIXED:
        return state
    if kind is dict:
        return {key: copied(value) for key, value in state.items()}
    if kind is list:
        return [copied(value) for value in state]
    return copy.deepcopy(state)
