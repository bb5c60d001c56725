"""Opens compressed text files."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from typing import BinaryIO, cast

from gristmill import _core

__all__ = ["open_text"]

PIECE_BYTES = 256 << 10
MAGIC_BYTES = 6


def open_text(path: str) -> BinaryIO:
    """Open a text file for reading bytes; decompress gzip, bzip2, xz and zstd.

    Reading raises EOFError if the file is truncated, and OSError, lzma.LZMAError,
    zlib.error or CorruptRecord if it is damaged.
    """
    with open(path, "rb") as file:
        magic = file.read(MAGIC_BYTES)
    return _opener(magic)(path)


def _opener(magic: bytes) -> Callable[[str], BinaryIO]:
    if magic.startswith(b"\x1f\x8b"):
        return lambda path: cast(BinaryIO, gzip.open(path, "rb"))
    if magic.startswith(b"BZh"):
        return lambda path: cast(BinaryIO, bz2.open(path, "rb"))
    if magic.startswith(b"\xfd7zXZ\0"):
        return lambda path: cast(BinaryIO, lzma.open(path, "rb"))
    is_skippable = magic[:1] in b"PQRSTUVWXYZ[\\]^_" and magic[1:4] == b"\x2a\x4d\x18"
    if is_skippable or magic.startswith(b"\x28\xb5\x2f\xfd"):
        return lambda path: io.BufferedReader(ZstdFile(path), PIECE_BYTES)
    return lambda path: open(path, "rb")


class ZstdFile(io.RawIOBase):
    """Reads a file of zstd frames."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._stream = _core.FrameStream("zstd")
        self._unread = memoryview(b"")
        self._in_frame = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a part of `buffer`; return its size, or 0 at the end of the file."""
        while True:
            count, written, is_end = self._stream.step(self._unread, buffer)
            self._unread = self._unread[count:]
            self._in_frame = not is_end and (self._in_frame or count > 0)
            if written:
                return written
            if not self._unread:
                self._unread = memoryview(self._file.read(PIECE_BYTES))
                if not self._unread:
                    break
        if self._in_frame:
            raise EOFError("the file ends within a zstd frame")
        return 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
