"""Gives each worker a position of its own in the files that its program has open.

A program is loaded once, and workers are forks of that process: they share what a file
is open by, and one that reads moves all.  A file is a regular one, as for `seek`; what
is only written to, such as a log, stays shared.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator

_loaded_in = 0
_opened: set[int] = set()


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Remember the files that are opened meanwhile, by number."""
    global _loaded_in
    before = _numbers()
    yield
    _opened.update(_numbers() - before)
    _loaded_in = os.getpid()


def own_positions() -> None:
    """Open those files again, at their positions, in a fork of the process.

    Raises:
        OSError: One cannot be opened again.
    """
    if os.getpid() == _loaded_in:
        return
    for fd in _opened:
        with contextlib.suppress(FileNotFoundError):  # It is closed by now.
            if stat.S_ISREG(os.stat(f"/proc/self/fd/{fd}").st_mode):
                _open_again(fd)


def _open_again(fd: int) -> None:
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    if flags & os.O_ACCMODE == os.O_WRONLY:
        return
    # Memory that shm_open(3) opened follows no links, and this path is one.
    again = os.open(f"/proc/self/fd/{fd}", flags & ~os.O_NOFOLLOW)
    try:
        os.lseek(again, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(again, fd, os.get_inheritable(fd))
    finally:
        os.close(again)


def _numbers() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}
