"""Decompression of shards to files that all processes of a machine share."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import os
import shutil
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gristmill import _core
from gristmill._base import log
from gristmill.errors import CorruptRecord
from gristmill.sources._sidecars import cache_dir
from gristmill.sources._urls import is_local, local_path

if TYPE_CHECKING:
    from gristmill.sources._remote import RemoteFile

__all__ = ["unpack", "unpacked_path", "warn_if_full"]

# At most this many shards are decompressed at a time, by all processes of the machine.
LOCKS = 8
# Longer than reading and decompressing a shard takes.
MAX_WAIT_MS = 120_000
UNWRITABLE = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS)


def unpacked_path(folder: str | None, path: str, version: str) -> str:
    """Return the path of the decompressed copy of a shard.

    Args:
        folder: The folder for such copies, or None for the default.
        path: The compressed shard, or its URL.
        version: A text that changes if the shard does.
    """
    if folder is None:
        folder = os.path.join(cache_dir(), "mds")
    full_path = os.path.abspath(local_path(path)) if is_local(path) else path
    # The hash separates shards with the same name from different folders.
    text = os.fsencode(f"{full_path}\n{version}")
    digest = hashlib.sha1(text, usedforsecurity=False).hexdigest()[:20]
    name = os.path.splitext(os.path.basename(full_path))[0]
    return os.path.join(os.path.abspath(folder), f"{digest}-{name}")


def warn_if_full(copies: Iterable[tuple[str, int]]) -> None:
    """Log a warning if decompressed copies do not fit on the disk.

    Args:
        copies: The path of each copy, and its size in bytes.
    """
    missing = [(path, size) for path, size in copies if not os.path.exists(path)]
    if not missing:
        return
    folder = os.path.dirname(missing[0][0])
    existing = folder
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    needed = sum(size for _, size in missing)
    free = shutil.disk_usage(existing).free
    if needed > free:
        log.warning(
            "%d shards decompress to %.1f GB, but %s has %.1f GB free. Set"
            " GRISTMILL_CACHE_DIR, or cache_dir=, to a larger folder.",
            len(missing),
            needed / 1e9,
            folder,
            free / 1e9,
        )


def unpack(file: str | RemoteFile, codec: str, size: int, target: str) -> None:
    """Decompress a file of `size` uncompressed bytes to `target`, if it is missing.

    Several threads and processes may call this at once.

    Raises:
        OSError: A file cannot be read or written.
        CorruptRecord: The file is damaged.
    """
    if os.path.exists(target):
        return
    try:
        _unpack_locked(file, codec, size, target)
    except OSError as error:
        if error.errno in UNWRITABLE:
            error.add_note(
                "Set GRISTMILL_CACHE_DIR, or cache_dir=, to a writable folder with"
                f" {size} free bytes."
            )
        raise


def _unpack_locked(file: str | RemoteFile, codec: str, size: int, target: str) -> None:
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    lock = os.path.join(folder, f"lock-{int(name[:8], 16) % LOCKS}")
    with open(lock, "ab"):
        pass
    with _core.FileLock(lock, MAX_WAIT_MS):
        if os.path.exists(target):  # Another process was faster.
            return
        path, data = _read(file)
        try:
            unpacked = _decompress(codec, data, size)
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise CorruptRecord(
                f"{path}: cannot be decompressed as {codec} to the {size} bytes that"
                f" index.json lists: {error}. Download it again."
            ) from None
        _core.replace_file(target, unpacked)
        # A crash of the machine must not leave a file with missing parts.
        with open(target, "rb") as written:
            os.fsync(written.fileno())


def _read(file: str | RemoteFile) -> tuple[str, bytes]:
    if not isinstance(file, str):
        return file.path, file.read_range(0, file.size)
    with open(file, "rb") as opened:
        return file, opened.read()


def _decompress(codec: str, data: bytes, size: int) -> bytes:
    """Return `size` bytes, or raise an exception."""
    if codec not in ("bz2", "gzip"):
        return _core.decompress(codec, data, size)
    open_stream = bz2.open if codec == "bz2" else gzip.open
    with open_stream(io.BytesIO(data)) as opened:
        unpacked: bytes = opened.read(size + 1)
    if len(unpacked) != size:
        more = "more" if len(unpacked) > size else len(unpacked)
        raise ValueError(f"found {more} bytes")
    return unpacked
