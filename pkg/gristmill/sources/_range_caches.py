"""The caches of remote files that this process uses: one for each folder."""

from __future__ import annotations

import os

from gristmill import _core
from gristmill._base import log
from gristmill.sources._remote_options import RemoteOptions

__all__ = ["cache_of", "warn_once"]

# By folder and bytes; None if the cache cannot be opened. Forked children share them.
_caches: dict[tuple[bytes, int], _core.RangeCache | None] = {}
_warned: set[str] = set()


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
            warn_once(f"cache_dir={options.cache_dir!r} cannot be used: {error}")
    return _caches[key]


def warn_once(problem: str) -> None:
    """Warn, once for each problem, that data is no longer cached."""
    if problem not in _warned:
        _warned.add(problem)
        log.warning(
            "%s. Reading continues, but the data is not cached on this machine.",
            problem,
        )
