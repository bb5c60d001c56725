"""Reads the loaders, times, memory and commands of other processes from the kernel.

A process may end at any moment; then functions return None, or an empty value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from gristmill._base.process_usage import ProcessUsage as ProcessUsage
from gristmill._base.process_usage import read_usage as read_usage
from gristmill._observe import shared_words

# The kernel's name of the file that `core/memory/arena.cpp` makes.
_ARENA = "/memfd:gristmill (deleted)"


@dataclasses.dataclass(frozen=True)
class Arena:
    """A file that may be a loader's shared memory.

    Each method opens it, because an open descriptor would keep the memory.
    """

    path: str
    inode: int

    def snapshot(self) -> shared_words.Snapshot | None:
        """Return the loader's present state, or None if it has ended.

        Raises:
            LayoutMismatchError: The loader is of another version.
        """
        with contextlib.suppress(OSError), self._open() as fd:
            return shared_words.snapshot(fd)
        return None

    def is_consumer_waiting(self) -> bool:
        """Return whether the consumer waits now."""
        with contextlib.suppress(OSError), self._open() as fd:
            return shared_words.is_consumer_waiting(fd)
        return False

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            # The process may have closed the file and opened another one there.
            if os.fstat(fd).st_ino != self.inode:
                raise FileNotFoundError(self.path)
            yield fd
        finally:
            os.close(fd)


def find_arenas(pid: int) -> list[Arena]:
    """Return the files of a process that may be loaders' memory, by descriptor.

    Raises:
        FileNotFoundError: The process does not exist.
        PermissionError: The process is another user's.
    """
    folder = f"/proc/{pid}/fd"
    paths: dict[int, str] = {}  # By inode.
    for descriptor in sorted(os.listdir(folder), key=int):
        path = f"{folder}/{descriptor}"
        with contextlib.suppress(OSError):
            if os.readlink(path) == _ARENA:
                paths.setdefault(os.stat(path).st_ino, path)
    return [Arena(path, inode) for inode, path in paths.items()]


def list_pids() -> list[int]:
    """Return the ids of all processes that this one can see."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def read_command(pid: int) -> str:
    """Return the command of a process in one line, or "" if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = b" ".join(words).decode(errors="replace")
    printable = (letter if letter.isprintable() else " " for letter in text)
    return " ".join("".join(printable).split())


def has_gristmill(pid: int) -> bool:
    """Return whether a process has imported Gristmill."""
    try:
        return "/gristmill/_core." in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def has_other_pid_namespace(pid: int) -> bool:
    """Return whether a process is in a container with its own process ids."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid")
    except OSError:
        return False
