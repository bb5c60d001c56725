"""Exceptions that the hot loops raise to the engine, never to the user."""

from __future__ import annotations


class StructureMismatch(ValueError):
    """One element of a batch has another structure than the first one.

    Args:
        position: Which element of the batch does not fit, from 1.
        path: Keys and positions that lead from the element to the misfit.
        expected: What the first element has there, in words.
        found: What this element has there, in words.
    """

    def __init__(
        self, position: int, path: tuple[object, ...], expected: str, found: str
    ) -> None:
        super().__init__(position, path, expected, found)
        self.position = position
        self.path = path
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        where = "".join(f"[{key!r}]" for key in self.path)
        return (
            f"element{where}: element {self.position} of the batch has {self.found},"
            f" but element 0 has {self.expected}"
        )


class NeedSpace(Exception):
    """A slot is too small for what must be written to it.

    Args:
        needed: Bytes that the whole slot needs, as far as is known by now.
    """

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.bytes = needed

    def __str__(self) -> str:
        return f"the slot must hold {self.bytes} bytes"
