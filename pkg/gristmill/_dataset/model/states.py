"""States of iterators: checked before anything is changed, copied, and replayed.

A class says by `_STATE` or `_check_state` what its states have.  The call on the
outermost iterator of a chain looks at the whole state first; then each takes its part.
An iterator of a user's own has states that only it knows, and what it hands on is
checked where it arrives.
"""

from __future__ import annotations

import copy
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gristmill._base.checks import kind
from gristmill.errors import StateMismatch

# Looks at a value of an iterator's state, and raises what is wrong with it.
Check = Callable[[Any, Any, str], None]
ADVICE = "Restore a state to the chain that it was taken from."
LONGEST_TEXT = 200
MOST_FAILED = 1000
_FIXED = frozenset({int, str, float, bool, bytes, type(None)})


class _Here(threading.local):
    """Whether this thread sets a state that was checked, all of it."""

    trusts = False
    # Whether an iterator was met, since it was set, whose states only it knows.
    met_unknown = False


_here = _Here()


class Checked:
    """An iterator whose states are looked at before anything is changed."""

    # What its states have, with the check of each value; None: they are the parent's.
    _STATE: ClassVar[Mapping[str, Check] | None] = None

    def set_state(self, state: Any) -> None:
        """Continue at a position that `get_state` returned.

        Raises:
            StateMismatch: It is a state of another chain, or none; nothing is changed.
            IndexError: It is one of a longer dataset; nothing is changed.
        """
        self._from_state = True
        if not _here.trusts:
            _here.met_unknown = False
            self._check_state(state)
            if not _here.met_unknown:
                go_to(self, state)
                return
        self._go_to(state)

    def _check_state(self, state: Any) -> None:
        """Refuse what is no state of this iterator."""
        if self._STATE is None:
            parent(self, state)
        else:
            check_values(self, state, self._STATE)

    def _go_to(self, state: Any) -> None:
        """Continue at a position that is known to be one."""
        parent: Any = self._parent  # type: ignore[attr-defined]
        parent.set_state(state)


def fields(**checks: Check) -> Mapping[str, Check]:
    """What states have: for each key a check of its value."""
    return checks


def check_state(iterator: Any, state: Any) -> None:
    """Look at the state of an iterator that is a part of another one's.

    Raises:
        StateMismatch: It is none of this iterator.
        IndexError: It is one of a longer dataset.
    """
    if getattr(type(iterator), "set_state", None) is Checked.set_state:
        iterator._check_state(state)
    else:
        _here.met_unknown = True


def go_to(iterator: Any, state: Any) -> None:
    """Set a state that is known to be the iterator's."""
    before, _here.trusts = _here.trusts, True
    try:
        iterator.set_state(state)
    finally:
        _here.trusts = before


def check_values(iterator: Any, state: Any, checks: Mapping[str, Check]) -> None:
    """Refuse what is no dict with just these keys, or has other values."""
    check_keys(iterator, state, checks)
    for name, look in checks.items():
        look(iterator, state[name], name)


def check_keys(iterator: Any, state: Any, keys: Any, optional: Any = ()) -> None:
    """Refuse what is no dict with just these keys."""
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
    check_list(iterator, states, name, len(iterator._parents))
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
    """The number that a state has; refuses what is none."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise mismatch(iterator, f"has {name} {_short(value)}, expected an int")


def check_list(iterator: Any, value: Any, name: str, length: int) -> None:
    """Refuse what is no list of some length."""
    is_list = isinstance(value, (Sequence, np.ndarray))
    if isinstance(value, (str, bytes)) or not is_list or len(value) != length:
        found = f"{len(value)} of them" if is_list else _short(value)
        raise mismatch(
            iterator, f"has {name}: {found}, expected a list of {length} of them"
        )


def mismatch(iterator: Any, what: str) -> StateMismatch:
    """What to raise of a state of which `what` is said."""
    return StateMismatch(f"{iterator}: the state {what}. {ADVICE}")


def _short(value: Any) -> str:
    text = repr(value)
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT] + "..."
    return f"{text} ({kind(value)})"


def copied(state: Any) -> Any:
    """A copy of a state that shares nothing that could change: `copy.deepcopy`, faster.

    A user's iterator may change a state that it has given out, or hold on to one.
    """
    kind = type(state)
    if kind in _FIXED:
        return state
    if kind is dict:
        return {key: copied(value) for key, value in state.items()}
    if kind is list:
        return [copied(value) for value in state]
    return copy.deepcopy(state)


def replay(elements: Iterator[Any], count: int) -> list[Any]:
    """Read again the next `count` elements, fewer only at the end.

    Elements that fail are passed over: whoever met them first was told.

    Raises:
        Exception: More than 1000 in a row failed: what the last of them raised.
    """
    found: list[Any] = []
    failed = 0
    while len(found) < count:
        try:
            found.append(next(elements))
        except StopIteration:
            break
        except Exception:
            failed += 1
            if failed > MOST_FAILED:
                raise
        else:
            failed = 0
    return found
