"""How the ranks of a pool divide the outputs."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """How the ranks of a pool divide the outputs.

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
