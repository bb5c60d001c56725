"""Refuses what is no state of an iterator, before anything in it is changed.

A class says what its states have by `checked` on its ``set_state``.  The call on the
outermost iterator of a chain looks at the whole state first; then each takes its part.
An iterator of a user's own has states that only it knows, and what it hands on is
checked where it arrives.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from gristmill._base.checks import kind
from gristmill.errors import StateMismatch

SetState = TypeVar("SetState", bound=Callable[..., None])
# Looks at a state, and raises what is wrong with it.
Check = Callable[[Any, Any], None]
ADVICE = "Restore a state to the chain that it was taken from."
LONGEST_TEXT = 200


class _Here(threading.local):
    """Whether this thread sets a state that was checked, all of it."""

    trusts = False
    # Whether an iterator was met, since it was set, whose states only it knows.
    met_unknown = False


_here = _Here()


def checked(check: Check) -> Callable[[SetState], SetState]:
    """Have a ``set_state`` look at the state before it does anything.

    Args:
        check: Takes the iterator and the state.
    """

    def wrap(set_state: SetState) -> SetState:
        @functools.wraps(set_state)
        def checking(self: Any, state: Any) -> None:
            if _here.trusts:
                set_state(self, state)
                return
            _here.met_unknown = False
            check(self, state)
            if _here.met_unknown:
                set_state(self, state)
            else:
                _trusting(set_state, self, state)

        checking._check = check  # type: ignore[attr-defined]
        found: SetState = checking  # type: ignore[assignment]
        return found

    return wrap


def check_state(iterator: Any, state: Any) -> None:
    """Look at the state of an iterator that is a part of another one's.

    Raises:
        StateMismatch: It is none of this iterator.
        IndexError: It is one of a longer dataset.
    """
    check = getattr(getattr(type(iterator), "set_state", None), "_check", None)
    if check is None:
        _here.met_unknown = True
    else:
        check(iterator, state)


def go_to(iterator: Any, state: Any) -> None:
    """Set a state that is known to be the iterator's."""
    _trusting(type(iterator).set_state, iterator, state)


def fields(**kinds: Any) -> Check:
    """A check for dicts with just these keys.

    Args:
        **kinds: For each a function of the iterator, the value, and what to call it.
    """

    def check(iterator: Any, state: Any) -> None:
        check_keys(iterator, state, kinds)
        for name, look in kinds.items():
            look(iterator, state[name], name)

    return check


def check_keys(iterator: Any, state: Any, keys: Any, optional: Any = ()) -> None:
    """Refuse what is no dict with just these keys.

    Raises:
        StateMismatch: It is none.
    """
    expected = f"a dict with {', '.join(map(repr, keys))}"
    if not isinstance(state, Mapping):
        raise mismatch(iterator, f"is {_short(state)}, expected {expected}")
    missing = [key for key in keys if key not in state]
    more = [key for key in state if key not in keys and key not in optional]
    if missing or more:
        raise mismatch(iterator, f"has the keys {list(state)}, expected {expected}")


def parent(iterator: Any, state: Any, name: str = "") -> None:
    """Look at a state of the iterator's only parent."""
    check_state(iterator._parent, state)


def parents(iterator: Any, states: Any, name: str) -> None:
    """Look at the states of all parents, a list."""
    expected = len(iterator._parents)
    check_list(iterator, states, name, expected)
    for each, state in zip(iterator._parents, states, strict=True):
        check_state(each, state)


def count(iterator: Any, value: Any, name: str) -> None:
    """Refuse what does not count anything."""
    number = integer(iterator, value, name)
    if not 0 <= number < 2**63:
        raise mismatch(iterator, f"has {name} {number}, expected at least 0")


def flag(iterator: Any, value: Any, name: str) -> None:
    """Refuse what is neither true nor false; JSON of Grain's has 0 and 1, too."""
    if not isinstance(value, (bool, np.bool_)):
        number = integer(iterator, value, name)
        if number not in (0, 1):
            raise mismatch(iterator, f"has {name} {number}, expected true or false")


def integer(iterator: Any, value: Any, name: str) -> int:
    """The number that a state has.

    Raises:
        StateMismatch: It is none.
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise mismatch(iterator, f"has {name} {_short(value)}, expected an int")


def check_list(iterator: Any, value: Any, name: str, length: int) -> None:
    """Refuse what is no list of some length.

    Raises:
        StateMismatch: It is none.
    """
    is_list = isinstance(value, (Sequence, np.ndarray))
    if isinstance(value, (str, bytes)) or not is_list or len(value) != length:
        found = f"{len(value)} of them" if is_list else _short(value)
        raise mismatch(
            iterator, f"has {name}: {found}, expected a list of {length} of them"
        )


def mismatch(iterator: Any, what: str) -> StateMismatch:
    """What to raise of a state of which `what` is said."""
    return StateMismatch(f"{iterator}: the state {what}. {ADVICE}")


def _trusting(set_state: Callable[..., None], iterator: Any, state: Any) -> None:
    before, _here.trusts = _here.trusts, True
    try:
        set_state(iterator, state)
    finally:
        _here.trusts = before


def _short(value: Any) -> str:
    text = repr(value)
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT] + "..."
    return f"{text} ({kind(value)})"
