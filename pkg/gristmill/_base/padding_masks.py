"""Masks that mark elements as data or as padding of the last batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill._base.argument_checks import check_instance, kind


def check_mask_key(key: Any) -> None:
    """Check that a key of a mask is a str or None."""
    if key is not None:
        check_instance("The key of a mask", key, str, "a str or None")


def with_mask(element: Any, real: bool, key: str | None) -> Any:
    """Return an element with its mask.

    Args:
        element: A mapping if `key` is given, else any object.
        real: Whether the element is data, not padding.
        key: The key of `real` in the returned dict, a copy of the element.  None: the
            result is the pair (element, real).

    Raises:
        TypeError: A key is given, but the element is not a mapping.
        ValueError: The element already has the key.
    """
    if key is None:
        return element, real
    if not isinstance(element, Mapping):
        raise TypeError(
            f"A mask with the key {key!r} needs elements that are dicts, got"
            f" {kind(element)}. Leave out the key for pairs (element, mask)."
        )
    if key in element:
        raise ValueError(
            f"The key of a mask must not be a key of elements, got {key!r}. Choose"
            " another key."
        )
    return {**element, key: real}
