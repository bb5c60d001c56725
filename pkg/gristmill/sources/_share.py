"""Among how many processes the requests to a host are shared.

Each makes its part of those that may be under way, so none has to ask another, and one
that is killed takes nothing with it.
"""

from __future__ import annotations

__all__ = ["processes", "share_among"]

_processes = 1


def share_among(count: int) -> None:
    """Say that this process is one of `count` that read for the same loader."""
    global _processes
    _processes = max(1, count)


def processes() -> int:
    """How many processes read for the same loader, this one among them."""
    return _processes
