"""Sends workers objects that `multiprocessing` shares only with child processes.

Locks, queues, shared memory and the like can be pickled only while "spawn" starts a
child, which inherits their descriptors.  This module does the same when a program is
pickled for workers of the launcher.  The supervisor sends the descriptors to the zygote
as one list (``csrc/core/processes/spawn.hpp``).
"""

from __future__ import annotations

import contextlib
import multiprocessing.context
import sys
from collections.abc import Iterator
from typing import Any

# The descriptors that this process, a zygote or a worker, received with the program.
# `Zygote` sets them, and its workers inherit the list.
received_fds: list[int] = []


class Inherited:
    """Stands for a descriptor in a pickle, like the DupFd of `multiprocessing`."""

    def __init__(self, number: int) -> None:
        self._number = number

    def detach(self) -> int:
        """Return the descriptor; the caller must close it."""
        return received_fds[self._number]


class _Start:
    """Represents the start of a child, like a ``Popen`` of `multiprocessing`."""

    DupFd = Inherited

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def duplicate_for_child(self, fd: int) -> int:
        """Add a descriptor to the inherited ones; return its index in the list."""
        self._descriptors.append(fd)
        return len(self._descriptors) - 1


@contextlib.contextmanager
def inheriting(descriptors: list[int]) -> Iterator[None]:
    """Let this thread pickle objects that can only be inherited.

    Args:
        descriptors: A list to which the descriptors are appended.  The pickled objects
            still own them.
    """
    context: Any = multiprocessing.context
    before = context.get_spawning_popen()
    context.set_spawning_popen(_Start(descriptors))
    try:
        yield
    finally:
        context.set_spawning_popen(before)


def tracker(descriptors: list[int]) -> Inherited | None:
    """Return an object that lets workers use this process's resource tracker.

    Returns None if the tracker does not run.  A tracker of a worker's own would remove
    shared memory that this process created.
    """
    tracking: Any = sys.modules.get("multiprocessing.resource_tracker")
    fd = tracking and tracking._resource_tracker._fd
    if fd is None:
        return None
    descriptors.append(fd)
    return Inherited(len(descriptors) - 1)


def use_tracker(inherited: Inherited | None) -> None:
    """Use the resource tracker of the process that pickled `inherited`."""
    if inherited is not None:
        from multiprocessing import resource_tracker

        tracking: Any = resource_tracker._resource_tracker
        tracking._fd = inherited.detach()


def become_child() -> None:
    """Initialize a fork as `multiprocessing` initializes a child that it forks."""
    if util := sys.modules.get("multiprocessing.util"):
        util._finalizer_registry.clear()
        util._run_after_forkers()


def leave_child() -> None:
    """Clean up as `multiprocessing` does at the end of a child: flush queues etc."""
    if util := sys.modules.get("multiprocessing.util"):
        util._exit_function()
