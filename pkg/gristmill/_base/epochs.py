"""The epoch in which random steps draw, where only the loader around them knows it.

A torch loader reads ``dataset[i]``, by the same indices in each epoch.  It sets the
epoch of the thread that computes its samples, and random steps below look it up.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterator
from typing import Any

from gristmill._base.checks import check_integer


class _Here(threading.local):
    """The epoch of the current thread.

    Attributes:
        epoch: Changes the random numbers of each index; 0 changes nothing.
        warns: Whether this thread warns of orders that are the same in each epoch;
            of several workers one does.
    """

    epoch = 0
    warns = True


here = _Here()


def checked_epoch(epoch: Any) -> int:
    """Return an epoch that a user chose as an int.

    Raises:
        TypeError: It is not an int.
        ValueError: It is negative.
    """
    check_integer("epoch", epoch)
    if epoch < 0:
        raise ValueError(f"epoch must be at least 0, got {epoch}.")
    return operator.index(epoch)


@contextlib.contextmanager
def drawing_in(epoch: int) -> Iterator[None]:
    """Set the epoch of this thread inside the context."""
    before = here.epoch
    here.epoch = epoch
    try:
        yield
    finally:
        here.epoch = before
