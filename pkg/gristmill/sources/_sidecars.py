"""Paths of data files' indices, which all processes and programs share."""

from __future__ import annotations

import os
import stat
from typing import Protocol

from gristmill._base import log
from gristmill.sources._urls import is_local, local_path

__all__ = ["cache_dir", "sidecar_paths", "warn_if_not_saved"]

SUFFIX = ".gristmill-index"
# A smaller index is not saved: computing it takes a few milliseconds.
MIN_SAVED_BYTES = 1 << 20
# A file system in memory, shared by all processes until the machine is shut down.
SHARED_MEMORY = "/dev/shm"


def sidecar_paths(path: str, kind: str, index_dir: str | None = None) -> list[str]:
    """Return the paths that the index of a data file may have, the best one first.

    Args:
        path: The data file, or its URL.
        kind: The format, the name of a folder of caches, such as ``"tar"``.
        index_dir: If not None, the only folder to consider.
    """
    import hashlib  # Slow to import.

    is_on_this_machine = is_local(path)
    full_path = os.path.abspath(local_path(path)) if is_on_this_machine else path
    folder, name = os.path.split(full_path)
    # The hash separates files with the same name from different folders.
    digest = hashlib.sha1(folder.encode(), usedforsecurity=False).hexdigest()[:16]
    cached_name = f"{name}-{digest}{SUFFIX}"
    if index_dir is not None:
        return [os.path.join(index_dir, cached_name)]
    # Hidden, so that patterns for the data files do not match it.
    next_to_file = (
        [os.path.join(folder, f".{name}{SUFFIX}")] if is_on_this_machine else []
    )
    caches = [cache_dir(), *_shared_memory()]
    return next_to_file + [os.path.join(cache, kind, cached_name) for cache in caches]


class IndexedFile(Protocol):
    """An open file; `index_path` is empty if its index is not saved."""

    @property
    def path(self) -> str: ...
    @property
    def index_path(self) -> str: ...


def warn_if_not_saved(file: IndexedFile) -> None:
    """Log a warning if the index of a file could not be saved."""
    if not file.index_path:
        log.warning(
            "The index of %s cannot be saved, so the whole file is read each time it is"
            " opened. Set GRISTMILL_CACHE_DIR, or index_dir=, to a writable folder.",
            file.path,
        )


def cache_dir() -> str:
    """Return the folder for data that can be recomputed; it need not exist."""
    if folder := os.environ.get("GRISTMILL_CACHE_DIR"):
        return folder
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(caches, "gristmill")


def _shared_memory() -> list[str]:
    """Return a list of this user's folder in memory; [] if others can write to it."""
    if not os.path.isdir(SHARED_MEMORY):
        return []
    folder = os.path.join(SHARED_MEMORY, f"gristmill-{os.getuid()}")
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return [folder]
    is_own_folder = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return [folder] if is_own_folder and not status.st_mode & 0o022 else []
