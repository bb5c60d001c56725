"""Counts the tokens of an element."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gristmill._base.argument_checks import kind

# The field of a dict that has an element's tokens, or a function that counts them.
# None: the element itself is the tokens.
Tokens: TypeAlias = str | Callable[[Any], int] | None
MIX_ADVICE = (
    "Pass tokens='field' to mix if they are in a field of a dict, or a function that"
    " counts them."
)


def check_tokens(tokens: object) -> None:
    """Raise TypeError unless `tokens` is one of `Tokens`."""
    if tokens is not None and not isinstance(tokens, str) and not callable(tokens):
        raise TypeError(
            "tokens must be the name of a field, or a function that returns the number"
            f" of tokens of an element, got {kind(tokens)}."
        )


def token_counter(tokens: Tokens, advice: str = MIX_ADVICE) -> Callable[[Any], int]:
    """Return the function that counts the tokens of an element.

    Args:
        tokens: See `Tokens`.
        advice: What to do about an element without tokens, a sentence.
    """
    return _Checked(tokens) if callable(tokens) else TokenLength(tokens, advice)


@dataclasses.dataclass(frozen=True)
class TokenLength:
    """Returns the length of an array or a list, or of one in a field of a dict.

    Attributes:
        field: The field; None if elements are arrays or lists.
        advice: What to do about another element, a sentence.
    """

    field: str | None
    advice: str

    def __call__(self, element: Any) -> int:
        cause: Exception | None = None
        try:
            tokens = element if self.field is None else element[self.field]
            if not isinstance(tokens, (Mapping, str, bytes)):
                return len(tokens)
        except (LookupError, TypeError) as error:
            cause = error
        expected, found = "an array or a list of tokens", kind(element)
        if self.field is not None:
            expected = f"a dict with an array in the field {self.field!r}"
            found = str([*element]) if isinstance(element, Mapping) else found
        raise TypeError(
            f"To count its tokens, an element must be {expected}, got {found}."
            f" {self.advice}"
        ) from cause


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
