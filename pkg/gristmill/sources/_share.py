"""The number of processes that share the requests to a host.

Each process may have an equal part of the requests in flight. Processes need not
communicate for this, and one that is killed does not hold anything that others need.
"""

from __future__ import annotations

__all__ = ["processes", "share_among"]

_processes = 1  # Until `share_among` is called.


def share_among(count: int) -> None:
    """Set the number of processes that read for the same loader, this one included."""
    global _processes
    _processes = max(1, count)


def processes() -> int:
    """Return the number of processes of the loader, including this one."""
    return _processes
