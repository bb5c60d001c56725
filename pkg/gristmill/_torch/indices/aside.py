"""Requests that are too long for the core, which wait in files."""

from __future__ import annotations

import collections
import os

import numpy as np

from gristmill._base.types import Int64Array

_NAME = "gristmill-request"


class Aside:
    """Files with requests, each from when it is asked until it is answered.

    They have no name: a worker opens them by the number of a descriptor of the user's
    process, as its successor does if it dies.

    Args:
        workers: How many there are; each answers in the order in which it was asked.
    """

    # Here, since at the interpreter's exit modules are empty.
    _close_fd = staticmethod(os.close)

    def __init__(self, workers: int) -> None:
        self._files: list[collections.deque[int]] = [
            collections.deque() for _ in range(workers)
        ]

    def put(self, worker: int, words: Int64Array | list[int], most: int) -> Int64Array:
        """Words that stand for those of a request, in a file if they are over `most`.

        Returns:
            Nothing, of shape (0,), where the words are short; else where they are, of
            shape (2,).
        """
        if len(words) <= most:
            self._files[worker].append(-1)
            return np.empty(0, np.int64)
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        self._files[worker].append(fd)
        with open(fd, "wb", closefd=False) as file:
            file.write(np.asarray(words, np.int64).data)
        return np.array([os.getpid(), fd], np.int64)

    def answered(self, worker: int) -> None:
        """Drop the oldest request of a worker."""
        if self._files[worker]:
            self._drop(self._files[worker].popleft())

    def clear(self) -> None:
        """Drop all."""
        for files in self._files:
            while files:
                self._drop(files.popleft())

    def _drop(self, fd: int) -> None:
        if fd >= 0:
            self._close_fd(fd)


def taken(place: Int64Array) -> Int64Array:
    """The words that are at a place given by `Aside.put`.

    Raises:
        OSError: The request was dropped: nobody waits for the answer.
    """
    pid, fd = place.tolist()
    path = f"/proc/{pid}/fd/{fd}"
    found = os.readlink(path)
    if not found.startswith(f"/memfd:{_NAME}"):
        raise OSError(f"{path} is {found}; expected a request, which was dropped")
    return np.fromfile(path, np.int64)
