"""Exceptions that the hot loops raise to the engine, never to the user."""

from __future__ import annotations


class StructureMismatchError(ValueError):
    """Raised if an element of a batch differs in structure from the first element."""

    def __init__(
        self, position: int, path: tuple[object, ...], expected: str, found: str
    ) -> None:
        where = "".join(f"[{key!r}]" for key in path)
        super().__init__(
            f"element{where}: element {position} of the batch has {found}, but"
            f" element 0 has {expected}"
        )
        self.position = position  # The index of the element in the batch, at least 1.
        self.path = path  # Keys and positions from the element to the difference.


class SlotTooSmallError(Exception):
    """Raised if a slot is too small for its outputs."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.bytes = needed  # The size that the whole slot must have, as far as known.

    def __str__(self) -> str:
        return f"The slot must have at least {self.bytes} bytes."
