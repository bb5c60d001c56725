"""The caches of remote files that this process uses: one for each folder."""

from __future__ import annotations

import os

from gristmill import _core
from gristmill._base import log
from gristmill.sources._remote_options import RemoteOptions

__all__ = ["cache_of", "tell_failure"]

# By folder and bytes; None if the cache cannot be opened. Forked children share them.
_caches: dict[tuple[bytes, int], _core.RangeCache | None] = {}
_told: set[str] = set()


def cache_of(options: RemoteOptions) -> _core.RangeCache | None:
    """Return the cache that options name, opened when it is first used.

    Returns None if there is no `cache_dir`. Warns and returns None if the cache cannot
    be opened.
    """
    if options.cache_dir is None:
        return None
    key = os.fsencode(options.cache_dir), int(options.cache_bytes)
    if key not in _caches:
        try:
            # Threads that race here open the same file.
            _caches[key] = _core.RangeCache(*key)
        except OSError as error:
            _caches[key] = None
            tell_failure(f"cache_dir={options.cache_dir!r} cannot be used: {error}")
    return _caches[key]


def tell_failure(problem: str) -> None:
    """Warn, once for each problem, that data is no longer cached."""
    if problem not in _told:
        _told.add(problem)
        log.warning(
            "%s. Reading continues, but the data is not cached on this machine.",
            problem,
        )
