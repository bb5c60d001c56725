"""Publishes facts about iterators, for `gristmill top`.

A process writes them to an anonymous file, which another process of the same user finds
among its open files.
"""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from typing import Any, Literal

_NAME = "gristmill-consumed"
_LINK = f"/memfd:{_NAME} (deleted)"

# The counts of delivered elements; the number of workers that "auto" chose.
Kind = Literal["counts", "auto_workers"]


class _Publication:
    """The facts about this process's iterators.

    Attributes:
        pid: The process that has written them; a fork has none.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._fd = os.memfd_create(_NAME)
        self._facts: dict[tuple[Kind, int], Any] = {}

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._fd)

    def add(self, kind: Kind, iterator: Any, fact: Any) -> None:
        """Publish the last fact of a kind about an iterator, until it is deleted."""
        key = kind, id(iterator)
        if key not in self._facts:
            weakref.finalize(iterator, self._remove, key).atexit = False
        self._facts[key] = fact
        self._write()

    def _remove(self, key: tuple[Kind, int]) -> None:
        if self.pid == os.getpid():
            self._facts.pop(key, None)
            self._write()

    def _write(self) -> None:
        facts = [(kind, fact) for (kind, _), fact in list(self._facts.items())]
        data = json.dumps({"pid": self.pid, "facts": facts}).encode()
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))


_publications: list[_Publication] = []


def publish(kind: Kind, iterator: Any, fact: Any) -> None:
    """Publish a fact about an iterator, as values of JSON, if the system can."""
    if not hasattr(os, "memfd_create"):
        return
    # Without a free descriptor, an error would lose the output that is due.
    with contextlib.suppress(OSError):
        if not _publications or _publications[0].pid != os.getpid():
            _publications[:] = [_Publication()]
        _publications[0].add(kind, iterator, fact)


def read_facts(pid: int, kind: Kind) -> list[Any]:
    """Return the last fact of a kind about each iterator of a process."""
    folder = f"/proc/{pid}/fd"
    facts: list[Any] = []
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(folder):
            path = f"{folder}/{descriptor}"
            # The process may close the file, or write it at the same time.
            with contextlib.suppress(OSError, ValueError, LookupError):
                if os.readlink(path) != _LINK:
                    continue
                with open(path, "rb") as file:
                    found = json.loads(file.read())
                if found["pid"] == pid:  # A fork inherits its parent's file.
                    facts += [fact for each, fact in found["facts"] if each == kind]
    return facts
