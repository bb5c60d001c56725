"""Checks of arguments that several public classes take.

They raise TypeError unless documented otherwise.  Error messages contain the expected
value, the type that was passed and the remedy.  They do not contain the value that was
passed, since it may be the user's data.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np


def kind(value: Any) -> str:
    """Describe an argument for an error message: its type, or the class itself."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return type(value).__name__


def check_integer(name: str, value: Any, advice: str = "") -> None:
    """Check that a value is an integer of Python or NumPy, and not a bool."""
    try:
        if isinstance(value, bool):
            raise TypeError
        operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {kind(value)}.{advice}") from None


def whole_number(name: str, value: Any) -> int:
    """Convert an integral number to int; Grain accepts 2.0 for 2 in some places."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    check_integer(name, value)
    return operator.index(value)


def check_number(name: str, value: Any) -> None:
    """Check that a value is a real number, and not a bool."""
    number = isinstance(value, (int, float, np.integer, np.floating))
    if not number or isinstance(value, bool):
        raise TypeError(f"{name} must be a number or None, got {kind(value)}.")


def check_finite(name: str, value: Any) -> None:
    """Check that a value is a number; raise ValueError for infinity and NaN."""
    try:
        number = float("text" if isinstance(value, (str, bytes)) else value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {kind(value)}.") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value}.")


def check_flag(name: str, value: Any) -> None:
    """Check that a value is a bool, None, 0 or 1.

    This catches numbers that were meant for another parameter.
    """
    if value is None or isinstance(value, (bool, np.bool_)):
        return
    if type(value) is int and value in (0, 1):
        return
    raise TypeError(f"{name} must be True or False, got {kind(value)}.")


def check_callable(name: str, value: Any, advice: str = "") -> None:
    """Check that a value can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {kind(value)}.{advice}")


def check_instance(
    name: str, value: Any, kinds: type | tuple[type, ...], expected: str
) -> None:
    """Check that a value is an instance of `kinds`; the error names `expected`."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {expected}, got {kind(value)}.")


def check_options(name: str, value: Any, options: type, example: str) -> None:
    """Check that a value has the fields of a dataclass.

    The error message shows `example`, code that creates such a value.
    """
    fields = dataclasses.fields(options)
    same = all(hasattr(value, field.name) for field in fields)
    if isinstance(value, type) or not same:
        raise TypeError(
            f"{name} must be a {options.__name__}, got {kind(value)}. Write {example}."
        )


def check_seed_of_draws(name: str, seed: Any, mixed: Sequence[int] = ()) -> None:
    """Check that NumPy accepts a seed; raise the type of NumPy's own exception.

    Args:
        name: The name of the argument.
        seed: One or several ints, at least 0.  None always passes.
        mixed: Ints that the seed will be mixed with.
    """
    if seed is None:
        return
    try:
        np.random.SeedSequence([seed, *mixed] if mixed else seed)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{name} must be an int of at least 0, got {kind(seed)}: {error}."
        ) from None


def stands_for(cls: type, block: str, single: str) -> bool:
    """Return whether a class's block method can replace its single-element method.

    It cannot if a subclass overrides only the single-element method.  The lookup uses
    the class and not an instance, because a wrapper may forward unknown names to the
    wrapped object.

    Args:
        cls: The class.
        block: The name of the method that takes a block of elements.
        single: The name of the method that takes one element.
    """
    for base in cls.__mro__:
        if block in vars(base):
            return True
        if single in vars(base):
            return False
    return False
