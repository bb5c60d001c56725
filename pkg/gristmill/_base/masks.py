"""Elements that say whether they are data or fill the last batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill._base.checks import check_instance, kind


def check_mask_key(key: Any) -> None:
    """Refuse what is no key of a mask; None is one."""
    if key is not None:
        check_instance("The key of a mask", key, str, "a str or None")


def with_mask(element: Any, real: bool, key: str | None) -> Any:
    """Return an element with its mask.

    Args:
        element: A mapping where there is a key, else anything.
        real: Whether it is data.
        key: Where a copy of the element, a dict, has `real`; None for a pair.

    Raises:
        TypeError: The element is no mapping, but there is a key.
        ValueError: The element has the key already.
    """
    if key is None:
        return element, real
    if not isinstance(element, Mapping):
        raise TypeError(
            f"A mask with the key {key!r} is for elements that are dicts, got"
            f" {kind(element)}. Leave the key out for pairs (element, mask)."
        )
    if key in element:
        raise ValueError(
            f"An element has the key {key!r} already, so a mask cannot have it. Choose"
            " another key."
        )
    return {**element, key: real}
