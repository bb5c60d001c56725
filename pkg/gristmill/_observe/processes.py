"""What the kernel tells of other processes: their loaders, time, memory, commands.

A process may end at any moment; what is asked of one that has is None, or nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gristmill._observe import shared_words

# As the kernel shows the file that `core/memory/arena.cpp` makes.
_ARENA = "/memfd:gristmill (deleted)"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """What a process has used.

    Attributes:
        state: The kernel's letter: R, S, D, T (stopped), Z (ended).
        cpu_s: Time of processors, of all threads.
        pss_bytes: Memory, of which what is shared counts by its part; where the kernel
            does not tell, all that is resident.
    """

    state: str
    cpu_s: float
    pss_bytes: int


@dataclasses.dataclass(frozen=True)
class Arena:
    """A file that may be a loader's shared memory.

    It is opened for each look: a descriptor that is kept would keep its memory.
    """

    path: str
    inode: int

    def snapshot(self) -> shared_words.Snapshot | None:
        """The loader now; None where it has gone.

        Raises:
            OtherLayout: It is of another version.
        """
        with contextlib.suppress(OSError), self._opened() as fd:
            return shared_words.snapshot(fd)
        return None

    def waits(self) -> bool:
        """Whether the consumer waits now."""
        with contextlib.suppress(OSError), self._opened() as fd:
            return shared_words.waits(fd)
        return False

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        # The number may be another file's by now.
        fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if os.fstat(fd).st_ino != self.inode:
                raise FileNotFoundError(self.path)
            yield fd
        finally:
            os.close(fd)


def arenas(pid: int) -> list[Arena]:
    """The files of a process that may be shared memory of loaders, oldest first.

    Raises:
        FileNotFoundError: There is no such process.
        PermissionError: It is another user's.
    """
    folder = f"/proc/{pid}/fd"
    found: dict[int, str] = {}
    for number in sorted(os.listdir(folder), key=int):
        path = f"{folder}/{number}"
        with contextlib.suppress(OSError):
            if os.readlink(path) == _ARENA:
                found.setdefault(os.stat(path).st_ino, path)
    return [Arena(path, inode) for inode, path in found.items()]


def all_pids() -> list[int]:
    """All processes that are shown to this one."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def usage(pid: int) -> Usage | None:
    """What a process has used; None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    pss = int(fields[21]) * _PAGE
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                pss = int(line.split()[1]) * 1024
    return Usage(fields[0], (int(fields[11]) + int(fields[12])) / _TICKS, pss)


def command(pid: int) -> str:
    """Its command in one line; empty where it has none any more."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = b" ".join(words).decode(errors="replace")
    shown = (letter if letter.isprintable() else " " for letter in text)
    return " ".join("".join(shown).split())


def has_gristmill(pid: int) -> bool:
    """Whether it has imported Gristmill."""
    try:
        return "/gristmill/_core." in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def sees_other_numbers(pid: int) -> bool:
    """Whether it is in a container whose processes have numbers of their own."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid")
    except OSError:
        return False
