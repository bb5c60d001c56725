"""Sends workers what `multiprocessing` shares only with children of a process.

Locks, queues, shared memory and the like can be pickled while a child is started by
"spawn": their descriptors become the child's.  Here a program is pickled for workers of
the launcher likewise.  Their descriptors reach the zygote in one list, by which the
supervisor sends them (``csrc/core/processes/spawn.hpp``).
"""

from __future__ import annotations

import contextlib
import multiprocessing.context
import sys
from collections.abc import Iterator
from typing import Any

# Those that came to this process with the program that it loads.
received: list[int] = []


class Inherited:
    """Stands in a pickle for a descriptor, as what `multiprocessing` calls DupFd."""

    def __init__(self, number: int) -> None:
        self._number = number

    def detach(self) -> int:
        """Return the descriptor, which is the caller's to close."""
        return received[self._number]


class _Start:
    """Stands for the start of a child, as a ``Popen`` of `multiprocessing` does."""

    DupFd = Inherited

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def duplicate_for_child(self, fd: int) -> int:
        """Let a descriptor be inherited; return its number in the list of all."""
        self._descriptors.append(fd)
        return len(self._descriptors) - 1


@contextlib.contextmanager
def inheriting(descriptors: list[int]) -> Iterator[None]:
    """Let this thread pickle what children inherit.

    Args:
        descriptors: Gets the descriptors, which stay those of what is pickled.
    """
    context: Any = multiprocessing.context
    before = context.get_spawning_popen()
    context.set_spawning_popen(_Start(descriptors))
    try:
        yield
    finally:
        context.set_spawning_popen(before)


def tracker(descriptors: list[int]) -> Inherited | None:
    """Return what lets workers use this process's resource tracker, if it runs.

    A tracker of their own would remove shared memory that this process made.
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
    """Do in a fork what `multiprocessing` does first in a child that it forks."""
    if util := sys.modules.get("multiprocessing.util"):
        util._finalizer_registry.clear()
        util._run_after_forkers()


def leave_child() -> None:
    """Do what `multiprocessing` does last in a child, such as to empty its queues."""
    if util := sys.modules.get("multiprocessing.util"):
        util._exit_function()
