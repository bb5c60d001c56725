"""Writes a file and computes its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from types import TracebackType
from typing import Any

import numpy.typing as npt

from gristmill._convert.errors import ConversionError, from_os_error

BUFFER_BYTES = 1 << 20


class HashedFile:
    """A file to write, with its SHA-256.  Leaving its context early removes the file.

    Args:
        path: The path of the file; an existing file is replaced.

    Raises:
        ConversionError: The file cannot be written, for example on a full disk.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self._digest = hashlib.sha256()
        self._is_finished = False
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # Do not write through a link.
            # Unbuffered, so that close() does not try to write again after an error.
            self._file = io.FileIO(path, "x")
        except OSError as error:
            raise from_os_error(error, path) from error
        self._buffer = bytearray()

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if not self._is_finished:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def write(self, data: npt.NDArray[Any] | bytes) -> None:
        """Append bytes, or those of a contiguous array."""
        if not isinstance(data, bytes):
            data = data.tobytes()
        self._digest.update(data)
        self.size += len(data)
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def finish(self) -> str:
        """Flush the file to disk, and return its SHA-256 in hex."""
        self._flush()
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise from_os_error(error, self.path) from error
        self._is_finished = True
        return self._digest.hexdigest()

    def _flush(self) -> None:
        remaining = memoryview(self._buffer)
        try:
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            raise from_os_error(error, self.path) from error
        self._buffer = bytearray()


def check_sha256(path: str, expected: str) -> None:
    """Read a file that was just written, and compare its SHA-256.

    Raises:
        ConversionError: The file cannot be read, or differs from what was written.
    """
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise from_os_error(error, path) from error
    if found != expected:
        raise ConversionError(
            f"{path}: read back a file with SHA-256 {found}, but wrote {expected}."
            " Check the disk and the memory."
        )
