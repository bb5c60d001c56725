"""Keeps decoded groups, the last ones used, up to so many bytes."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

__all__ = ["GroupCache"]


class GroupCache(Generic[T]):
    """A cache of groups, by number.

    Args:
        decode: Makes a group, called without a lock.
        size_of: Bytes of a group.
        limit_bytes: Those used longest ago are dropped beyond this; the group used
            last is kept whatever its size.

    Thread-safe: a group that several threads want is decoded by the first, and the
    others wait for it.  If that fails each of them tries for itself.
    """

    def __init__(
        self,
        decode: Callable[[int], T],
        size_of: Callable[[T], int],
        limit_bytes: int,
    ) -> None:
        self._decode = decode
        self._size_of = size_of
        self._limit_bytes = limit_bytes
        # Guarded by the lock.
        self._lock = threading.Lock()
        self._groups: collections.OrderedDict[int, T] = collections.OrderedDict()
        self._bytes = 0
        self._decoding: dict[int, threading.Event] = {}

    def get(self, number: int) -> T:
        """Return a group, decoded now unless it is kept."""
        while True:
            with self._lock:
                if number in self._groups:
                    self._groups.move_to_end(number)
                    return self._groups[number]
                done = self._decoding.get(number)
                if done is None:
                    mine = self._decoding[number] = threading.Event()
                    break
            done.wait()
        try:
            group = self._decode(number)
            self._keep(number, group)
        finally:
            with self._lock:
                del self._decoding[number]
            mine.set()
        return group

    def clear(self) -> None:
        """Drop all groups."""
        with self._lock:
            self._groups.clear()
            self._bytes = 0

    def _keep(self, number: int, group: T) -> None:
        size = self._size_of(group)
        with self._lock:
            self._groups[number] = group
            self._bytes += size
            while self._bytes > self._limit_bytes and len(self._groups) > 1:
                _, oldest = self._groups.popitem(last=False)
                self._bytes -= self._size_of(oldest)
