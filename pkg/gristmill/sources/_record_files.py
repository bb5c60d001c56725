"""Opens record files, wherever they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gristmill import _core
from gristmill.sources._remote import RemoteFile, RemoteOptions, is_url

__all__ = ["open_file"]

_LOCAL_SCHEMES = ("file://", "local://")


def open_file(
    path: str | os.PathLike[str],
    *,
    verify: str = "all",
    access: str = "pread",
    cache: _core.ChunkCache | None = None,
    storage_options: Mapping[str, Any] | None = None,
    remote_options: RemoteOptions | None = None,
) -> _core.RecordFile:
    """Open an ArrayRecord file.

    Args:
        path: A path, or a URL that fsspec knows, such as ``gs://bucket/path``. A
            ``file://`` URL is read as the path that it is.
        verify: Which hashes are compared: "all" of data and headers, "headers", or
            "none".
        access: How files of this machine are read: "pread", or "mmap" for less work
            per record; a mapped file that another process truncates may end this
            process. Files behind URLs know "pread" only.
        cache: Keeps decoded chunks of more than one record, of other files too; None
            for one of 64 MiB.
        storage_options: Arguments of the URL's file system, such as credentials.
        remote_options: How files behind URLs are read. None for the defaults.

    Raises:
        OSError: The file cannot be opened or read. FileNotFoundError,
            PermissionError, IsADirectoryError and RemoteError are among these.
        CorruptRecord: It is no ArrayRecord file, or is damaged.
        ImportError: fsspec, or what it needs for the URL, is not installed.
        ValueError: An argument is wrong, or does not suit the path.

    Example:
        >>> open_file("/none/such", storage_options={"anon": True})
        Traceback (most recent call last):
            ...
        ValueError: /none/such is on this machine and has no use for storage_options.
    """
    file = find_file(os.fspath(path), access, storage_options, remote_options)
    return _core.RecordFile(file, verify, access, cache)


def find_file(
    name: str,
    access: str,
    storage_options: Mapping[str, Any] | None,
    remote_options: RemoteOptions | None,
) -> str | RemoteFile:
    """Return the path of a file of this machine, or what reads one behind a URL.

    The arguments are those of `open_file`, and so are the errors.
    """
    check_name(name, access, storage_options)
    if is_local(name):
        return local_path(name)
    return RemoteFile(name, storage_options, remote_options)


def check_name(
    name: str, access: str, storage_options: Mapping[str, Any] | None
) -> None:
    """Refuse options that do not suit a name, without looking at the file.

    Raises:
        ValueError: They do not.
    """
    if access not in ("pread", "mmap"):
        raise ValueError(f"access is {access!r}, but must be 'pread' or 'mmap'")
    if not is_local(name):
        if access != "pread":
            raise ValueError(
                f"access is {access!r}, but {name} is far away: only 'pread' reads it."
            )
    elif storage_options:
        raise ValueError(
            f"{name} is on this machine and has no use for storage_options."
        )


def is_local(name: str) -> bool:
    """Whether `name` is a path of this machine, if perhaps as a URL."""
    return not is_url(name) or name.startswith(_LOCAL_SCHEMES)


def local_path(name: str) -> str:
    """Return the path that a ``file://`` URL is; any other name as it is."""
    for scheme in _LOCAL_SCHEMES:
        name = name.removeprefix(scheme)
    return name
