"""The paths of a source's files; there may be tens of thousands."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

__all__ = ["FilePaths"]


class FilePaths(tuple[str, ...]):
    """Paths in order. A pickle has a few bytes per path, because paths are similar.

    Example:
        >>> paths = FilePaths(f"/data/train-{i:05d}-of-10000" for i in range(10_000))
        >>> data = pickle.dumps(paths)
        >>> len(data) < 50_000, pickle.loads(data) == paths
        (True, True)
    """

    __slots__ = ()

    def __reduce__(self) -> Any:
        # Pickled as strings: a path may contain any character, even lone surrogates.
        return _unpacked, (zlib.compress(pickle.dumps([*self]), 1),)


def _unpacked(packed: bytes) -> FilePaths:
    return FilePaths(pickle.loads(zlib.decompress(packed)))
