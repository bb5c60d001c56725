"""Ways to divide the outputs among the ranks of a pool."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """A way to divide the outputs among the ranks of a pool.

    Attributes:
        DEAL: Each rank gets a part of the data.
        BROADCAST: All ranks get the same outputs.
    """

    DEAL = "deal"
    BROADCAST = "broadcast"

    @classmethod
    def _missing_(cls, value: object) -> Mode:
        names = ", ".join(repr(member.value) for member in cls)
        raise ValueError(f"mode must be one of {names}, got {value!r}.")
