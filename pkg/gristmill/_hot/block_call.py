"""Calls the user's code with several elements at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gristmill._base.argument_checks import check_integer, kind
from gristmill._hot.error_location import as_failure


class BlockLengthError(ValueError):
    """Raised if a function got several elements and did not return as many."""


class BlockCall:
    """Calls a function of a list of elements with one or with several elements.

    Args:
        function: Takes a list of elements and returns a sequence or an array with the
            same number of elements.
        size: The maximum number of elements per call.

    Raises:
        TypeError: The size is not an integer.
        ValueError: The size is less than 1.
    """

    __slots__ = ("function", "size")

    def __init__(self, function: Callable[[list[Any]], Any], size: int) -> None:
        check_integer("block_size", size)
        if size < 1:
            raise ValueError(f"block_size must be at least 1, got {size}.")
        self.function = function
        self.size = int(size)

    def __call__(self, element: Any) -> Any:
        """Return the result for one element."""
        return self._call([element])[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockCall, (self.function, self.size)

    def call_all(self, elements: list[Any]) -> list[Any]:
        """Return the results for any number of elements; the list is not changed.

        Raises:
            Exception: The function raised it, perhaps for several elements at once.
            BlockLengthError: The function did not return as many elements as it got.
                For a single element this is a plain ValueError.
            TypeError: The function did not return a sequence or an array.
        """
        results: list[Any] = []
        for first in range(0, len(elements), self.size):
            results += self._call(elements[first : first + self.size])
        return results

    def _call(self, elements: list[Any]) -> list[Any]:
        """Call the function once, and return its results as a list."""
        # Count first: the function may change the list.
        count = len(elements)
        try:
            returned = self.function(elements)
        except StopIteration as error:
            raise as_failure(error, _name(self.function)) from error
        if type(returned) is not list:
            is_sequence = hasattr(returned, "__len__") and hasattr(
                returned, "__getitem__"
            )
            is_scalar = getattr(returned, "ndim", 1) == 0
            is_one = is_scalar or isinstance(returned, (str, bytes, Mapping))
            if is_one or not is_sequence:
                raise TypeError(
                    f"{_name(self.function)} must return a list with one element for"
                    f" each of the {count} that it gets, got {kind(returned)}."
                )
            returned = list(returned)
        if len(returned) != count:
            raise (BlockLengthError if count > 1 else ValueError)(
                f"{_name(self.function)} must return a list with one element for each"
                f" of the {count} that it gets, in order, got {len(returned)} elements."
            )
        results: list[Any] = returned
        return results


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
