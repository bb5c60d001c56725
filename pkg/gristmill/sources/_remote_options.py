"""Implementation of sources.RemoteOptions."""

from __future__ import annotations

import dataclasses
import os

from gristmill._base.argument_checks import check_integer

__all__ = ["RemoteOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """Configure how remote files are read.

    Args:
        attempts: How often a read is tried if the network or the server fails, at
            least 1. Permanent errors, such as a missing file or missing rights, are
            raised at the first attempt.
        first_delay_s: The longest wait after the first attempt, in seconds. It
            doubles with each attempt. The actual wait is a random part of it.
        most_delay_s: The longest wait of all, in seconds.
        timeout_s: How long an attempt may take, in seconds; then it counts as failed.
            File systems of fsspec that are not asynchronous, such as ``hf://``, have
            limits of their own instead.
        gap_bytes: Records at most this many bytes apart are read together.
        run_bytes: The maximum size of one request for several records, in bytes.
        tail_bytes: How many bytes at the end of a file are read to find its index. A
            longer index costs one more request.
        parallel: How many requests to one host may be in flight at a time, at least
            2. This limits all worker processes of a loader together; each has an equal
            part. The actual number adapts: it grows as long as that increases the
            throughput, and is halved when requests fail. File systems of fsspec that
            are not asynchronous have at most 64 in each process.
        cache_dir: A folder on this machine that caches what was read. Later reads are
            served from it, also in other processes and programs, as long as the remote
            file is unchanged. The folder is created if it is missing. None disables the
            cache.
        cache_bytes: The maximum size of the cache in bytes; at least 9 MiB. All
            programs that share a folder should pass the same value. Only caches of the
            same size are shared, and a cache of another size is removed when no
            program uses it any more.

    Raises:
        TypeError: A count is not an int, or `cache_dir` is not a path.
        ValueError: A value is out of range.

    Example:
        >>> RemoteOptions(attempts=3).attempts
        3
    """

    __module__ = __name__.rpartition(".")[0]  # The name in pickles.

    attempts: int = 6
    first_delay_s: float = 0.1
    most_delay_s: float = 10.0
    timeout_s: float = 60.0
    gap_bytes: int = 128 << 10
    run_bytes: int = 2 << 20
    tail_bytes: int = 512 << 10
    parallel: int = 256
    cache_dir: str | os.PathLike[str] | None = None
    cache_bytes: int = 64 << 30

    def __post_init__(self) -> None:
        if self.cache_dir is not None:
            object.__setattr__(self, "cache_dir", os.fsdecode(self.cache_dir))
            if not self.cache_dir:
                raise ValueError("cache_dir must be a folder or None, got ''.")
        for name, minimum in _MINIMUMS.items():
            value = getattr(self, name)
            if not name.endswith("_s"):
                check_integer(name, value)
            if not value >= minimum:
                raise ValueError(f"{name} must be at least {minimum}, got {value}.")
        if self.cache_bytes > MAX_CACHE_BYTES:
            raise ValueError(
                f"cache_bytes must be at most {MAX_CACHE_BYTES}, got"
                f" {self.cache_bytes}."
            )
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0, got {self.timeout_s}.")


MAX_CACHE_BYTES = 1 << 62
_MINIMUMS = {
    "attempts": 1,
    "first_delay_s": 0,
    "most_delay_s": 0,
    "gap_bytes": 0,
    "run_bytes": 1,
    "tail_bytes": 0,
    "parallel": 2,
    "cache_bytes": 9 << 20,
}
