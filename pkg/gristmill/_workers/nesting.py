"""Prevents workers from starting workers.

A module that iterates a loader when it is imported would start workers that import it,
and so on forever.  Therefore a worker never starts workers, nor does a process that was
started while a worker imported modules.  A program that a step starts on purpose may.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import FrameType

# The environment variable that a worker sets while it imports modules.  Processes that
# the imports start inherit it.
IMPORTING = "GRISTMILL_WORKER_IMPORTS"
# The packages whose frames iterate loaders, and are not the user's.
_LOADERS = ("gristmill", "torch")

# The pid of the process that became a worker.  A fork made by a step is not a worker.
_worker_pid = 0


def become_worker() -> None:
    """Prevent this process from starting workers from now on."""
    global _worker_pid
    _worker_pid = os.getpid()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Prevent processes that are started inside this context from starting workers."""
    os.environ[IMPORTING] = "1"
    try:
        yield
    finally:
        os.environ.pop(IMPORTING, None)


def check_may_start_workers() -> None:
    """Check that this process may start workers.

    Raises:
        RuntimeError: This process is a worker, or an import in a worker has started it.
            The message names the user's line.
    """
    if os.getpid() != _worker_pid and IMPORTING not in os.environ:
        return
    frames = list(_frames_of_user(sys._getframe(1)))
    module_frame = next(
        (frame for frame in frames if frame.f_code.co_name == "<module>"), None
    )
    if module_frame is not None:
        raise RuntimeError(
            f"{_location(module_frame)} iterates a loader with workers when it is"
            " imported or run, and a worker process has imported or started it: each"
            " worker would start workers, forever. Put this code into a function, or"
            ' under `if __name__ == "__main__":`, so that an import does not run it.'
        )
    who = _location(frames[0]) if frames else "A thread"
    raise RuntimeError(
        f"{who} iterates a loader with workers in a worker process, which cannot start"
        " workers. Use worker_count=0, or num_workers=0, for loaders that steps,"
        " sources and datasets iterate."
    )


def _frames_of_user(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames that called a loader, up to those of the loader's own worker."""
    while frame is not None and _module(frame).partition(".")[0] in _LOADERS:
        frame = frame.f_back
    while frame is not None and _module(frame).partition(".")[0] not in _LOADERS:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _location(frame: FrameType) -> str:
    file = frame.f_code.co_filename
    # Pickled functions of ``__main__`` have no file name.
    file_part = "" if file.startswith("<") else f"{file}, "
    return f"{_module(frame)} ({file_part}line {frame.f_lineno})"
