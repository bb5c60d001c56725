"""URLs that fsspec reads: their file systems, and the files that match a pattern."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

__all__ = [
    "file_system_of",
    "glob_url",
    "host_of",
    "is_local",
    "is_url",
    "local_path",
]

_LOCAL_SCHEMES = ("file://", "local://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[A-Za-z][A-Za-z0-9+.-]*::")


def is_url(path: str) -> bool:
    """Return whether fsspec reads `path`: ``gs://...``, ``simplecache::...``."""
    return _URL.match(path) is not None


def is_local(name: str) -> bool:
    """Return whether `name` is a path on this machine, or a ``file://`` URL."""
    return not is_url(name) or name.startswith(_LOCAL_SCHEMES)


def local_path(name: str) -> str:
    """Return the path of a ``file://`` URL, or any other name unchanged."""
    for scheme in _LOCAL_SCHEMES:
        name = name.removeprefix(scheme)
    return name


def host_of(url: str) -> str:
    """Return the scheme and host of a URL: ``https://host``, ``gs://bucket``.

    Example:
        >>> host_of("https://host:80/folder/file?a=https://b/c")
        'https://host:80'
    """
    target = re.split("[?#]", url.rpartition("::")[2], maxsplit=1)[0]
    scheme, separator, host_and_path = target.rpartition("://")
    return scheme + separator + host_and_path.partition("/")[0]


def file_system_of(url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it."""
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise ImportError(
            f"Reading {url} needs the fsspec package. Install it with:"
            " pip install 'gristmill[remote]'"
        ) from error
    try:
        system, path = core.url_to_fs(url, **storage_options)
    except ImportError as error:
        raise ImportError(
            f"Reading {url} needs a package that is not installed: {error}. Install"
            " it; for http:// and https://, use: pip install 'gristmill[remote]'"
        ) from error
    return system, path


def glob_url(
    pattern: str, storage_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the URLs that match a pattern, in the order of their names."""
    if "::" in pattern:
        raise ValueError(
            f"A pattern must not be in a chain of URLs, got {pattern}. Pass a list of"
            " URLs."
        )
    filesystem, path = file_system_of(pattern, storage_options or {})
    # The text before the path in the pattern also precedes the paths that glob returns.
    path_in_pattern = path.lstrip("/") if not pattern.endswith(path) else path
    prefix = pattern.removesuffix(path_in_pattern)
    return sorted(
        prefix + (match if path_in_pattern == path else match.lstrip("/"))
        for match in filesystem.glob(path)
    )
