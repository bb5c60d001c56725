"""Exceptions that the hot loops raise to the engine, never to the user."""

from __future__ import annotations


class StructureMismatch(ValueError):
    """One element of a batch has another structure than the first one."""

    def __init__(
        self, position: int, path: tuple[object, ...], expected: str, found: str
    ) -> None:
        where = "".join(f"[{key!r}]" for key in path)
        super().__init__(
            f"element{where}: element {position} of the batch has {found}, but"
            f" element 0 has {expected}"
        )
        self.position = position  # Which element of the batch, from 1.
        self.path = path  # Keys and positions that lead from it to the misfit.


class NeedSpace(Exception):
    """A slot is too small for what must be written to it."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.bytes = needed  # Of the whole slot, as far as is known by now.

    def __str__(self) -> str:
        return f"the slot must hold {self.bytes} bytes"
