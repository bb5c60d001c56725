"""Refuses workers of workers.

A module that iterates a loader when it is imported would start workers that import it,
and so on without end.  So a worker never starts workers, nor does a process that was
started while a worker imported modules.  A program that a step starts on purpose may.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

# Is in the environment of a worker while it imports, and so of what the imports start.
IMPORTING = "GRISTMILL_WORKER_IMPORTS"
_PACKAGE = str(Path(__file__).parents[1]) + os.sep

# The process that became a worker.  A fork of it that a step makes is not a worker.
_worker_pid = 0


def become_worker() -> None:
    """Let this process start no workers from here on."""
    global _worker_pid
    _worker_pid = os.getpid()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Let no process start workers that the code in here starts."""
    os.environ[IMPORTING] = "1"
    try:
        yield
    finally:
        os.environ.pop(IMPORTING, None)


def check_may_start_workers() -> None:
    """Refuse to start workers in a worker, and in what an import of a worker started.

    Raises:
        RuntimeError: This is such a process.  The text names the user's line.
    """
    if os.getpid() != _worker_pid and IMPORTING not in os.environ:
        return
    frames = list(_frames_of_user(sys._getframe(1)))
    module = next((one for one in frames if one.f_code.co_name == "<module>"), None)
    if module is not None:
        raise RuntimeError(
            f"{_place(module)} iterates a loader with workers when it is imported or"
            " run, and a worker process has imported or started it: each worker would"
            " start workers, without end. Put this code into a function, or behind"
            ' `if __name__ == "__main__":`, so that an import does not run it.'
        )
    where = f"{_place(frames[0])} iterates" if frames else "This code iterates"
    raise RuntimeError(
        f"{where} a loader with workers in a worker process, which cannot have workers"
        " of its own. Use worker_count=0, or num_workers=0, for loaders that steps,"
        " sources and datasets iterate."
    )


def _frames_of_user(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames that called Gristmill, up to Gristmill's own that called them."""
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    while frame is not None and not _is_ours(frame):
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGE)


def _place(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "A module")
    return f"{module} ({frame.f_code.co_filename}, line {frame.f_lineno})"
