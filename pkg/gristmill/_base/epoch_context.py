"""The current epoch of each thread, for random steps inside a torch loader.

A torch loader reads ``dataset[i]`` with the same indices in each epoch, so random steps
cannot derive the epoch from the index.  The loader sets the epoch of the thread that
computes its samples, and the steps read it.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterator
from typing import Any

from gristmill._base.argument_checks import check_integer


class _EpochContext(threading.local):
    """The epoch of the current thread.

    Attributes:
        epoch: Mixed into the random numbers of each index.  0 leaves them unchanged.
        warns: Whether this thread warns if the order is the same in each epoch.  Only
            one of several workers warns.
    """

    epoch = 0
    warns = True


epoch_context = _EpochContext()


def check_epoch(epoch: Any) -> int:
    """Check a user's epoch and return it as an int.

    Raises:
        TypeError: The epoch is not an int.
        ValueError: The epoch is negative.
    """
    check_integer("epoch", epoch)
    if epoch < 0:
        raise ValueError(f"epoch must be at least 0, got {epoch}.")
    return operator.index(epoch)


@contextlib.contextmanager
def use_epoch(epoch: int) -> Iterator[None]:
    """Set the epoch of this thread inside the context."""
    outer_epoch = epoch_context.epoch
    epoch_context.epoch = epoch
    try:
        yield
    finally:
        epoch_context.epoch = outer_epoch
