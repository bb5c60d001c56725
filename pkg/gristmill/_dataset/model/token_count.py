"""Counts the tokens of an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gristmill._base.argument_checks import kind

# The field of a dict that has an element's tokens, or a function that counts them.
# None: the element itself is the tokens.
Tokens: TypeAlias = str | Callable[[Any], int] | None


def check_tokens(tokens: object) -> None:
    """Raise TypeError unless `tokens` is one of `Tokens`."""
    if tokens is not None and not isinstance(tokens, str) and not callable(tokens):
        raise TypeError(
            "tokens must be the name of a field, or a function that returns the number"
            f" of tokens of an element, got {kind(tokens)}."
        )


def token_counter(tokens: Tokens) -> Callable[[Any], int]:
    """Return the function that counts the tokens of an element.

    Args:
        tokens: See `Tokens`.
    """
    if tokens is None:
        return _length_of
    return _FieldLength(tokens) if isinstance(tokens, str) else _Checked(tokens)


def _length_of(element: Any) -> int:
    """Return the length of an array or a list.

    Raises:
        TypeError: The element is something else.
    """
    if isinstance(element, (Mapping, str, bytes)):
        raise _no_tokens(element)
    try:
        return len(element)
    except TypeError:
        raise _no_tokens(element) from None


def _no_tokens(element: Any) -> TypeError:
    return TypeError(
        "To count its tokens, an element must be an array or a list of tokens, got"
        f" {kind(element)}. Pass tokens='field' to mix if they are in a field of a"
        " dict, or a function that counts them."
    )


class _FieldLength:
    """Returns the length of a field of a dict."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __call__(self, element: Any) -> int:
        try:
            return _length_of(element[self._field])
        except (KeyError, IndexError, TypeError) as error:
            found = list(element) if isinstance(element, Mapping) else kind(element)
            raise TypeError(
                f"To count its tokens, an element must be a dict with an array in the"
                f" field {self._field!r}, got {found}. Pass another field to mix as"
                " tokens."
            ) from error


class _Checked:
    """Calls a user's function, and checks its result."""

    def __init__(self, function: Callable[[Any], int]) -> None:
        self._function = function

    def __call__(self, element: Any) -> int:
        count = self._function(element)
        try:
            number = count.__index__()
        except AttributeError:
            number = -1
        if number < 0:
            raise ValueError(
                "The function that counts the tokens of an element must return an int"
                f" of at least 0, got {count!r} ({kind(count)})."
            )
        return number
