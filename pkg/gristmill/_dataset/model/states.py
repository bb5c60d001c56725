"""Checks, copies and restores states of iterators.

A class defines the structure of its states by `_STATE` or `_check_state`.  `set_state`
of the outermost iterator of a chain first checks the whole state, then sets each
iterator to its part.  States of a user's iterator are opaque.  If it passes states to
its parents, these check them when they are set.
"""

from __future__ import annotations

import copy
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gristmill._base.argument_checks import kind
from gristmill.errors import StateMismatch

# Checks a value of an iterator's state (iterator, value, name), and raises if it is
# wrong.
Check = Callable[[Any, Any, str], None]
ADVICE = "Restore a state to the chain that saved it."
MAX_TEXT_CHARS = 200
MAX_FAILURES = 1000
_FIXED = frozenset({int, str, float, bool, bytes, type(None)})


class _CheckState(threading.local):
    """The current thread's progress in setting a state.

    Attributes:
        is_checked: Whether the whole state that is being set has been checked.
        found_opaque: Whether an iterator with opaque states was found since the call.
    """

    is_checked = False
    found_opaque = False


_thread_state = _CheckState()


class Checked:
    """An iterator that checks states before it changes anything."""

    # The keys of states, with a check of each value; None: states are the parent's.
    _STATE: ClassVar[Mapping[str, Check] | None] = None

    def set_state(self, state: Any) -> None:
        """Continue at a position that `get_state` returned.

        Args:
            state: The result of `get_state` of an iterator over an equal chain.

        Raises:
            StateMismatch: The state is invalid, or of another chain. Nothing is
                changed.
            IndexError: The state is of a longer dataset. Nothing is changed.
        """
        self._from_state = True
        if not _thread_state.is_checked:
            _thread_state.found_opaque = False
            self._check_state(state)
            if not _thread_state.found_opaque:
                go_to(self, state)  # Parents need not check their parts again.
                return
        self._go_to(state)

    def _check_state(self, state: Any) -> None:
        """Raise StateMismatch if a state is not one of this iterator."""
        if self._STATE is None:
            parent(self, state)
        else:
            check_values(self, state, self._STATE)

    def _go_to(self, state: Any) -> None:
        """Continue at a position that was checked."""
        parent: Any = self._parent  # type: ignore[attr-defined]
        parent.set_state(state)


def fields(**checks: Check) -> Mapping[str, Check]:
    """Return the check of the value of each key in a state."""
    return checks


def check_state(iterator: Any, state: Any) -> None:
    """Check the state of an iterator, which is a part of another iterator's state.

    Raises:
        StateMismatch: It is not a state of this iterator.
        IndexError: It is a state of a longer dataset.
    """
    if getattr(type(iterator), "set_state", None) is Checked.set_state:
        iterator._check_state(state)
    else:
        _thread_state.found_opaque = True


def go_to(iterator: Any, state: Any) -> None:
    """Set a state that was checked."""
    was_checked, _thread_state.is_checked = _thread_state.is_checked, True
    try:
        iterator.set_state(state)
    finally:
        _thread_state.is_checked = was_checked


def check_values(iterator: Any, state: Any, checks: Mapping[str, Check]) -> None:
    """Raise StateMismatch unless `state` has exactly these keys, and valid values."""
    check_keys(iterator, state, checks)
    for name, check in checks.items():
        check(iterator, state[name], name)


def check_keys(iterator: Any, state: Any, keys: Any, optional: Any = ()) -> None:
    """Raise StateMismatch unless `state` is a dict with exactly these keys."""
    expected = f"a dict with {', '.join(map(repr, keys))}"
    if not isinstance(state, Mapping):
        raise mismatch(iterator, f"is {_value_text(state)}, expected {expected}")
    missing = [key for key in keys if key not in state]
    unknown = [key for key in state if key not in keys and key not in optional]
    if missing or unknown:
        raise mismatch(iterator, f"has the keys {list(state)}, expected {expected}")


def parent(iterator: Any, state: Any, name: str = "") -> None:
    """Check a state of the iterator's only parent."""
    check_state(iterator._parent, state)


def parents(iterator: Any, states: Any, name: str) -> None:
    """Check a list of the states of all parents."""
    check_list(iterator, states, name, len(iterator._parents))
    for each, state in zip(iterator._parents, states, strict=True):
        check_state(each, state)


def count(iterator: Any, value: Any, name: str) -> None:
    """Raise StateMismatch unless a value is an int in [0, 2**63)."""
    number = integer(iterator, value, name)
    if not 0 <= number < 2**63:
        raise mismatch(iterator, f"has {name} {number}, expected an int in [0, 2**63)")


def flag(iterator: Any, value: Any, name: str) -> None:
    """Raise StateMismatch unless a value is a bool, or 0 or 1 as in Grain's JSON."""
    if not isinstance(value, (bool, np.bool_)):
        number = integer(iterator, value, name)
        if number not in (0, 1):
            raise mismatch(iterator, f"has {name} {number}, expected true or false")


def integer(iterator: Any, value: Any, name: str) -> int:
    """Return a value of a state as an int. Raises StateMismatch if it is not one."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise mismatch(iterator, f"has {name} {_value_text(value)}, expected an int")


def check_list(iterator: Any, value: Any, name: str, length: int) -> None:
    """Raise StateMismatch unless a value is a list of the given length."""
    is_list = isinstance(value, (Sequence, np.ndarray))
    if isinstance(value, (str, bytes)) or not is_list or len(value) != length:
        found = f"{len(value)} items" if is_list else _value_text(value)
        raise mismatch(
            iterator,
            f"has {name}: {found}, expected a list of {length} items",
        )


def mismatch(iterator: Any, problem: str) -> StateMismatch:
    """Return the error for a state; `problem` continues "the state ..."."""
    return StateMismatch(f"{iterator}: the state {problem}. {ADVICE}")


def _value_text(value: Any) -> str:
    text = repr(value)
    if len(text) > MAX_TEXT_CHARS:
        text = text[:MAX_TEXT_CHARS] + "..."
    return f"{text} ({kind(value)})"


def copy_state(state: Any) -> Any:
    """Return a deep copy of a state, faster than `copy.deepcopy`.

    A user's iterator may change a state that it returned, or keep a reference to it.
    """
    kind = type(state)
    if kind in _FIXED:
        return state
    if kind is dict:
        return {key: copy_state(value) for key, value in state.items()}
    if kind is list:
        return [copy_state(value) for value in state]
    return copy.deepcopy(state)


def replay(elements: Iterator[Any], count: int) -> list[Any]:
    """Read the next `count` elements again; fewer only at the end.

    Elements that fail are skipped: their errors were raised the first time.

    Raises:
        Exception: More than 1000 elements in a row failed; the last one's error.
    """
    elements_read: list[Any] = []
    failed = 0
    while len(elements_read) < count:
        try:
            elements_read.append(next(elements))
        except StopIteration:
            break
        except Exception:
            failed += 1
            if failed > MAX_FAILURES:
                raise
        else:
            failed = 0
    return elements_read
