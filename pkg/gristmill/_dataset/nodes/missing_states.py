"""Raises errors for states of chains that could not be restored.

Nodes often get the states of their parents, so an iterable without a state returns one
that marks it as missing.  If a state has this mark, the user gets an error.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

from gristmill._dataset.model.node import chain_of

# The key of a state that represents a missing one; its value is the iterable's name.
MISSING_STATE_KEY = "no_state_of"


def missing_state_error(name: str, read: int) -> TypeError:
    """Return the error for a position that cannot be saved or restored."""
    return TypeError(
        f"{name} has no state, so a position after {read} elements of it cannot be"
        " saved or restored. Give the iterable or its iterator the methods"
        " state_dict() and load_state_dict(state), or pass"
        " from_iterable(..., replay=True) if each iteration returns the same elements;"
        " restoring then reads the earlier elements again."
    )


def check_no_missing_state(state: Any) -> None:
    """Raise TypeError if a part of a state marks a missing one."""
    parts = [state]
    for part in parts:
        if isinstance(part, Mapping):
            if MISSING_STATE_KEY in part:
                raise missing_state_error(
                    part[MISSING_STATE_KEY], part["elements_read"]
                )
            parts += part.values()
        elif isinstance(part, (list, tuple)):
            parts += part


def may_lack_state(dataset: Any) -> bool:
    """Return True if a chain may have an iterable without a state."""
    return any(node._may_lack_state for node in chain_of(dataset))


def refuse_missing_states(iterator: Any, dataset: Any) -> None:
    """Let a chain's last iterator raise TypeError if a part of its state is missing.

    The iterator gets another class, so that each `next` takes as long as before.
    """
    if may_lack_state(dataset):
        # The class of some objects cannot change; set_state raises for their states.
        with contextlib.suppress(TypeError):
            kind: Any = type(iterator)
            iterator.__class__ = _class_that_refuses(kind)


@functools.cache
def _class_that_refuses(kind: Any) -> Any:
    """Return a class of iterators like `kind` with a `get_state` that may refuse."""
    original = kind.get_state

    @functools.wraps(original)
    def get_state(self: Any) -> Any:
        state = original(self)
        check_no_missing_state(state)
        return state

    return similar_class(kind, get_state=get_state)


def similar_class(kind: Any, **members: Any) -> Any:
    """Return a subclass that looks like `kind`, with other members."""
    for name in ("__module__", "__qualname__", "__doc__"):
        members[name] = getattr(kind, name)
    return type(kind)(kind.__name__, (kind,), {"__slots__": (), **members})
