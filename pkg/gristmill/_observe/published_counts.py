"""Publishes what iterators have delivered, for `gristmill top`.

A process writes its counts to an anonymous file, which another process of the same user
finds among its open files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import weakref
from typing import Any

from gristmill._base.source_counts import SourceCounts

_NAME = "gristmill-consumed"
_LINK = f"/memfd:{_NAME} (deleted)"


class _Publication:
    """The counts of this process's iterators.

    Attributes:
        pid: The process that has written them; a fork has none.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._fd = os.memfd_create(_NAME)
        self._counts: dict[int, Any] = {}

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def add(self, iterator: Any, counts: SourceCounts) -> None:
        """Publish the last counts of an iterator, until it is deleted."""
        number = id(iterator)
        if number not in self._counts:
            weakref.finalize(iterator, self._remove, number).atexit = False
        self._counts[number] = {
            name: dataclasses.asdict(count) for name, count in counts.items()
        }
        self._write()

    def _remove(self, number: int) -> None:
        if self.pid == os.getpid():
            self._counts.pop(number, None)
            self._write()

    def _write(self) -> None:
        iterators = list(self._counts.values())
        text = json.dumps({"pid": self.pid, "iterators": iterators})
        data = text.encode()
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))


_publications: list[_Publication] = []


def publish(iterator: Any, counts: SourceCounts) -> None:
    """Publish what an iterator has delivered."""
    if not hasattr(os, "memfd_create"):
        return
    if not _publications or _publications[0].pid != os.getpid():
        _publications[:] = [_Publication()]
    _publications[0].add(iterator, counts)


def read_counts(pid: int) -> list[dict[str, Any]]:
    """Return the last counts of each iterator of a process, by source."""
    folder = f"/proc/{pid}/fd"
    iterators: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(folder):
            path = f"{folder}/{descriptor}"
            # The process may close the file, or write it at the same time.
            with contextlib.suppress(OSError, ValueError):
                if os.readlink(path) != _LINK:
                    continue
                with open(path, "rb") as file:
                    found = json.loads(file.read())
                if found["pid"] == pid:  # A fork inherits its parent's file.
                    iterators += found["iterators"]
    return iterators
