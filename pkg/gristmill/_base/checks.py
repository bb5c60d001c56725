"""Checks of arguments that several public classes take.

They raise TypeError unless they say otherwise.  Texts say what was expected, what came
and what to do; of what came the type, since the value may be the user's data.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np


def kind(value: Any) -> str:
    """What an argument is, for a text: its type, or which class it is."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return type(value).__name__


def check_integer(name: str, value: Any, advice: str = "") -> None:
    """Refuse what cannot count; NumPy's integers can, floats and truth values not."""
    try:
        if isinstance(value, bool):
            raise TypeError
        operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {kind(value)}.{advice}") from None


def whole_number(name: str, value: Any) -> int:
    """The int that a number stands for; Grain takes 2.0 for 2 in some places."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    check_integer(name, value)
    return operator.index(value)


def check_number(name: str, value: Any) -> None:
    """Refuse what is no number."""
    number = isinstance(value, (int, float, np.integer, np.floating))
    if not number or isinstance(value, bool):
        raise TypeError(f"{name} must be a number or None, got {kind(value)}.")


def check_finite(name: str, value: Any) -> None:
    """Refuse what is no number, and by ValueError infinity and NaN."""
    try:
        number = float("text" if isinstance(value, (str, bytes)) else value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {kind(value)}.") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither true nor false, such as a number meant for another one."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return
    if type(value) is int and value in (0, 1):
        return
    raise TypeError(f"{name} must be True or False, got {kind(value)}.")


def check_callable(name: str, value: Any, advice: str = "") -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {kind(value)}.{advice}")


def check_instance(
    name: str, value: Any, kinds: type | tuple[type, ...], expected: str
) -> None:
    """Refuse what is none of some classes; the text says what was `expected`."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {expected}, got {kind(value)}.")


def check_options(name: str, value: Any, options: type, example: str) -> None:
    """Refuse what has not the fields of a dataclass; `example` is what to write."""
    fields = dataclasses.fields(options)
    same = all(hasattr(value, field.name) for field in fields)
    if isinstance(value, type) or not same:
        raise TypeError(
            f"{name} must be a {options.__name__}, got {kind(value)}. Write {example}."
        )


def check_seed_of_draws(name: str, seed: Any, mixed: Sequence[int] = ()) -> None:
    """Refuse what NumPy makes no generator of, in the type of its own exception.

    Args:
        name: Of the argument.
        seed: A number or several, at least 0; None is none.
        mixed: Numbers that it will be mixed with.
    """
    if seed is None:
        return
    try:
        np.random.SeedSequence([seed, *mixed] if mixed else seed)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{name} must be an int of at least 0, got {kind(seed)}: {error}."
        ) from None
