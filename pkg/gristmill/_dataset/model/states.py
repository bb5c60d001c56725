"""Snapshots of iterators' states, which an iterator that goes on does not change."""

from __future__ import annotations

import copy
from typing import Any

from gristmill._dataset.model.node import is_ours

_FIXED = frozenset({int, str, float, bool, bytes, type(None)})


def snapshot(iterator: Any, fresh: bool = False) -> Any:
    """The state of an iterator, as it is now.

    Args:
        iterator: Has ``get_state``.
        fresh: What `gives_fresh_states` said of it.
    """
    state = iterator.get_state()
    return state if fresh else copied(state)


def gives_fresh_states(iterator: Any) -> bool:
    """Whether no state of an iterator changes once it is given out.

    Those of built-in iterators do not, unless that of one of a user's is a part of it.
    """
    return is_ours(iterator) and all(map(gives_fresh_states, iterator._parents))


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
