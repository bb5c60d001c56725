"""Find record files of any kind: paths, patterns, shards and URLs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gristmill import _core
from gristmill._base.types import K, S
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._sidecars import sidecar_paths
from gristmill.sources._urls import glob_url, is_local, local_path

if TYPE_CHECKING:
    from gristmill.sources._remote import RemoteFile

__all__ = ["count_records", "expand", "find_file", "in_threads", "open_file"]

# In names of Bagz shards, the shard number comes before the file extension.
# The groups are the base, the number of shards or "*", and the extension.
SHARDED_PATH = re.compile(r"(.+)@(\d+|\*)(\.bagz?)?", re.DOTALL)
# The number of local files opened at once. Building an index takes about 17 MB. Remote
# files use more threads, because these mostly wait.
LOCAL_THREADS = max(16, os.cpu_count() or 1)
FAR_THREADS = 64
GLOB_CHARACTERS = re.compile(r"[*?[]")


def open_file(
    path: str | os.PathLike[str],
    *,
    verify: str = "all",
    access: str = "pread",
    cache: _core.ChunkCache | None = None,
    stamp: tuple[int, int] | None = None,
    index_dir: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    remote_options: RemoteOptions | None = None,
) -> _core.RecordFile:
    """Open an ArrayRecord file.

    Options and errors are those of `ArrayRecordDataSource`. `cache` holds decoded
    chunks of more than one record, and may be shared by files; None creates one of 64
    MiB. `stamp` is the expected version of the file, from `count_records`. The index of
    a file with many chunks is saved for all processes, see `sidecar_paths`.

    Example:
        >>> open_file("/none/such", storage_options={"anon": True})
        Traceback (most recent call last):
            ...
        ValueError: storage_options needs a URL, got the path /none/such. Leave it out.
    """
    file = find_file(os.fspath(path), access, storage_options, remote_options)
    index_paths = sidecar_paths(os.fspath(path), "array_record", index_dir)
    return _core.RecordFile(file, verify, access, cache, stamp, index_paths)


def count_records(
    names: Sequence[str],
    verify: str,
    storage_options: Mapping[str, Any] | None,
    remote_options: RemoteOptions | None,
) -> list[tuple[int, int, tuple[int, int]]]:
    """Count the records of ArrayRecord files concurrently.

    Returns:
        The number of records, the number of chunks, and the stamp (size in bytes and
        version) of each file.
    """
    if all(map(is_local, names)):
        return _core.count_all_records([*map(local_path, names)], verify)

    def count(name: str) -> tuple[int, int, tuple[int, int]]:
        file = find_file(name, "pread", storage_options, remote_options)
        return _core.count_records(file, verify)

    return in_threads(count, names, FAR_THREADS)


def in_threads(
    function: Callable[[K], S], arguments: Sequence[K], threads: int
) -> list[S]:
    """Return the results of a blocking function for each argument, using threads."""
    if len(arguments) < 2:
        return [*map(function, arguments)]
    from concurrent.futures import ThreadPoolExecutor  # Slow to import.

    with ThreadPoolExecutor(min(len(arguments), threads)) as pool:
        return list(pool.map(function, arguments))


def find_file(
    name: str,
    access: str,
    storage_options: Mapping[str, Any] | None,
    remote_options: RemoteOptions | None,
) -> str | RemoteFile:
    """Return the path of a local file, or a RemoteFile for a URL."""
    check_name(name, access, storage_options)
    if is_local(name):
        return local_path(name)
    from gristmill.sources._remote import RemoteFile  # Slow to import.

    return RemoteFile(name, storage_options, remote_options)


def check_name(
    name: str, access: str, storage_options: Mapping[str, Any] | None
) -> None:
    """Raise ValueError if options do not suit a name; the file is not opened."""
    if access not in ("pread", "mmap"):
        raise ValueError(f"access must be 'pread' or 'mmap', got {access!r}.")
    if not is_local(name):
        if access != "pread":
            raise ValueError(
                f"access must be 'pread' for a URL, got {access!r} for {name}."
            )
    elif storage_options:
        raise ValueError(
            f"storage_options needs a URL, got the path {name}. Leave it out."
        )


def expand(paths: Any, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Return the files that a path or a sequence of paths stands for.

    If a path is not a local file, it may be a pattern, or ``base@4`` or ``base@*`` for
    the shards ``base-00000-of-00004`` and so on.

    Example:
        >>> expand("train@2")
        ['train-00000-of-00002', 'train-00001-of-00002']
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Sequence):
        raise TypeError(
            f"paths must be a path or a list of paths, got a {type(paths).__name__}."
        )
    files: list[str] = []
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"paths must contain only paths, got a {type(path).__name__}."
            )
        files.extend(_files_of(os.fspath(path), storage_options))
    if not files:
        raise ValueError("paths must have at least one path, got an empty list.")
    return files


def _files_of(path: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return the files that one path, pattern or name of shards stands for."""
    if is_local(path) and os.path.exists(local_path(path)):
        return [path]
    if match := SHARDED_PATH.fullmatch(path):
        base, count, end = match.groups("")
        if count != "*":
            return _shards(base, int(count), end)
        return _all_shards(base, end, storage_options)
    if not GLOB_CHARACTERS.search(path):
        return [path]  # Opening it raises the error, if any.
    files = _glob(path, storage_options)
    if not files:
        raise FileNotFoundError(
            f"Expected files that match the pattern {path}, found none."
        )
    return files


def _glob(pattern: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    if is_local(pattern):
        return sorted(glob.glob(local_path(pattern)))
    return glob_url(pattern, storage_options)


def _shards(base: str, count: int, end: str) -> list[str]:
    return [f"{base}-{i:05d}-of-{count:05d}{end}" for i in range(count)]


def _all_shards(
    base: str, end: str, storage_options: Mapping[str, Any] | None
) -> list[str]:
    """Return the shards that exist; raise FileNotFoundError if one is missing."""
    files = _glob(f"{glob.escape(base)}-?????-of-?????{end}", storage_options)
    if not files:
        raise FileNotFoundError(
            f"Expected shards of {base}{end} named {base}-00000-of-*{end}, found none."
        )
    count = files[0].removesuffix(end)[-5:]  # The digits after "-of-".
    expected = _shards(local_path(base), int(count), end) if count.isdecimal() else []
    if expected != files:
        missing = sorted(set(expected) - set(files))
        raise FileNotFoundError(
            f"Expected one complete set of {len(expected)} shards of {base}, found"
            f" {len(files)} files, missing {missing[0] if missing else 'none'}."
        )
    return files
