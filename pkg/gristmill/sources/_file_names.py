"""Names that stand for several files: patterns, and the shards of a dataset."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gristmill.sources._record_files import is_local, local_path
from gristmill.sources._remote import glob_url

__all__ = ["expand"]

SHARDED = re.compile(r"(.+)@(\d+|\*)", re.DOTALL)
GLOB_CHARACTERS = re.compile(r"[*?[]")


def expand(paths: Any, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Return the files that paths stand for.

    Args:
        paths: A path or a sequence of paths.  What names no file of this machine may
            be a pattern, or ``base@4`` or ``base@*`` for shards
            ``base-00000-of-00004`` and so on.
        storage_options: Arguments of the file system of URLs.

    Raises:
        TypeError: A path is none.
        ValueError: There is no path.
        FileNotFoundError: Nothing matches a pattern, or shards are missing.

    Example:
        >>> expand("train@2")
        ['train-00000-of-00002', 'train-00001-of-00002']
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Sequence):
        raise TypeError(
            f"paths is a {type(paths).__name__}, but must be a path or a list of paths."
        )
    found: list[str] = []
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"paths has a {type(path).__name__}, but must have only paths."
            )
        found.extend(_files_of(os.fspath(path), storage_options))
    if not found:
        raise ValueError("paths is an empty list. Pass at least one path.")
    return found


def _files_of(path: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    if is_local(path) and os.path.exists(local_path(path)):
        return [path]
    if sharded := SHARDED.fullmatch(path):
        base, count = sharded.groups()
        if count != "*":
            return _shards(base, int(count))
        return _all_shards(base, storage_options)
    if not GLOB_CHARACTERS.search(path):
        return [path]  # Opening it says what is wrong.
    found = _glob(path, storage_options)
    if not found:
        raise FileNotFoundError(f"No file matches the pattern {path}.")
    return found


def _glob(pattern: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    if is_local(pattern):
        return sorted(glob.glob(local_path(pattern)))
    return glob_url(pattern, storage_options)


def _shards(base: str, count: int) -> list[str]:
    return [f"{base}-{i:05d}-of-{count:05d}" for i in range(count)]


def _all_shards(base: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    found = _glob(f"{glob.escape(base)}-?????-of-?????", storage_options)
    if not found:
        raise FileNotFoundError(f"No file is a shard of {base}: {base}-00000-of-*.")
    count = found[0][-5:]
    wanted = _shards(local_path(base), int(count)) if count.isdecimal() else []
    if wanted != found:
        missing = sorted(set(wanted) - set(found))
        raise FileNotFoundError(
            f"The shards of {base} are not complete, or of two sets: {len(found)} files"
            f" were found, {len(wanted)} expected, missing"
            f" {missing[0] if missing else 'none'}."
        )
    return found
