"""The epoch in which random steps draw, where only the loader around them knows it.

A torch loader reads ``dataset[i]``, by the same indices in each epoch.  It sets the
epoch of the thread that computes its samples, and random steps below look it up.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Here(threading.local):
    """Of the current thread.

    Attributes:
        epoch: Changes the random numbers of each index; 0 changes nothing.
        warns: Whether this thread warns of orders that are the same in each epoch;
            of several workers one does.
    """

    epoch = 0
    warns = True


here = _Here()


@contextlib.contextmanager
def drawing_in(epoch: int) -> Iterator[None]:
    """Set the epoch of this thread inside the context."""
    before = here.epoch
    here.epoch = epoch
    try:
        yield
    finally:
        here.epoch = before
