"""Checks of arguments that several public classes take."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["check_integer"]


def check_integer(name: str, value: Any) -> None:
    """Refuse what cannot count: NumPy's integers can, floats cannot.

    Raises:
        TypeError: `value` is not an int.
    """
    try:
        operator.index(value)
    except TypeError:
        # The value itself may be the user's data.
        raise TypeError(f"{name} must be an int, got {type(value).__name__}.") from None
