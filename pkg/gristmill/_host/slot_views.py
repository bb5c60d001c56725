"""Arrays on the memory of a pool, and the release of this memory."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill._pool.unit_task import Bytes

# Not in `mmap` before Python 3.13.
_MAP_NORESERVE = 0x4000
_PAGE = mmap.PAGESIZE
# PAGEMAP_SCAN of linux/fs.h, in Linux 6.7 and newer.
_PAGEMAP_SCAN = 0xC0606610
_PAGE_IS_FILE, _PAGE_IS_PRESENT, _PAGE_IS_SWAPPED = 4, 8, 16


class _Forks:
    """The number of forks that this process has made."""

    count = 0


def _count_fork() -> None:
    _Forks.count += 1


os.register_at_fork(after_in_parent=_count_fork)


class PoolMemory:
    """A mapping of a pool's arena in a rank.

    Args:
        fd: The descriptor of the arena; not kept.
        nbytes: The size of the arena.
        private: Whether writes stay in this process, since other ranks read the same
            slots.
    """

    def __init__(self, fd: int, nbytes: int, *, private: bool) -> None:
        self._private = private
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        self._mapping = mmap.mmap(fd, nbytes, flags=flags | _MAP_NORESERVE)
        self._base = np.frombuffer(self._mapping, np.uint8).ctypes.data
        # The descriptor of this process's page table; -1 if there is none.
        self._pages_fd = -1
        if private:
            with contextlib.suppress(OSError):
                self._pages_fd = os.open("/proc/self/pagemap", os.O_RDONLY)
                weakref.finalize(self, os.close, self._pages_fd)

    def view(self, offset: int, nbytes: int) -> Bytes:
        """Return the bytes of a slot; see `release_after`."""
        view: Bytes = np.asarray(_SlotView(self, offset, nbytes))
        return view

    def bytes_at(self, offset: int, nbytes: int) -> Bytes:
        """Return bytes of the arena, which the next user of the slot changes."""
        return np.frombuffer(self._mapping, np.uint8, nbytes, offset)

    def address(self, offset: int) -> int:
        """Return the address of a byte of the arena in this process."""
        return int(self._base) + offset

    def drop_writes(self, offset: int, nbytes: int) -> None:
        """Drop what this process has written to a slot, so that it reads the pool's."""
        begin = offset - offset % _PAGE
        if self._private and self._may_have_writes(begin, offset + nbytes):
            self._mapping.madvise(mmap.MADV_DONTNEED, begin, offset + nbytes - begin)

    def _may_have_writes(self, begin: int, end: int) -> bool:
        """Return whether this process may have pages of its own in a range.

        Dropping pages that it shares with the pool would make it map them again.
        """
        if self._pages_fd < 0:
            return True
        found = np.empty(3, np.uint64)  # One range of pages.
        last = self.address(end + -end % _PAGE)
        query = struct.pack(
            "12Q",
            *(96, 0, self.address(begin), last, 0, found.ctypes.data, 1, 1),
            # Pages that are present or swapped, and not those of the file.
            *(_PAGE_IS_FILE, _PAGE_IS_FILE, _PAGE_IS_PRESENT | _PAGE_IS_SWAPPED),
            _PAGE_IS_FILE,
        )
        try:
            found_count: int = fcntl.ioctl(
                self._pages_fd, _PAGEMAP_SCAN, bytearray(query)
            )
            return found_count > 0
        except OSError:
            return True


def release_after(view: Any, release: Callable[[], None]) -> None:
    """Have a view of a slot call `release` when no array uses it anymore.

    A fork of this process may read the slot for any time, so it is not released after a
    fork.
    """
    view.base.release = release


class _SlotView:
    """The base of the arrays on a slot; the last of them releases the slot."""

    def __init__(self, memory: PoolMemory, offset: int, nbytes: int) -> None:
        self._memory = memory
        self._place = offset, nbytes
        self.release: Callable[[], None] | None = None
        self._owner = os.getpid(), _Forks.count
        self.__array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (memory.address(offset), False),
            "version": 3,
        }

    def __del__(self) -> None:
        # The interpreter may be shutting down, and the pool may be gone.
        with contextlib.suppress(Exception):
            if self.release and self._owner == (os.getpid(), _Forks.count):
                self._memory.drop_writes(*self._place)
                self.release()
