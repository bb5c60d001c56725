"""Options for how records are read and by how many processes."""

from __future__ import annotations

import dataclasses

from gristmill._base import log
from gristmill._base.checks import check_flag, check_integer
from gristmill._base.listing import listed

__all__ = ["MultiprocessingOptions", "ReadOptions"]


@dataclasses.dataclass(slots=True)
class ReadOptions:
    """Say how one process reads its records ahead.

    Args:
        num_threads: Threads that read where reading waits, for a disk or a network;
            at least 0. 0 always reads where the record is needed. Without workers as
            many compute what transforms leave to their batch, as those of images do:
            up to one for each core, and one where this is 0.
        prefetch_buffer_size: Elements read ahead by all threads of a process
            together, at least 0. 0 turns reading ahead off. Records of files behind
            URLs are read further ahead where it takes that for long requests, up to
            256 MB.

    Raises:
        ValueError: A number is negative.
        TypeError: A number is not an int.

    Example:
        >>> ReadOptions(num_threads=4)
        ReadOptions(num_threads=4, prefetch_buffer_size=500)
    """

    num_threads: int = 16
    prefetch_buffer_size: int = 500

    def __post_init__(self) -> None:
        for name in ("num_threads", "prefetch_buffer_size"):
            value = getattr(self, name)
            check_integer(name, value)
            if value < 0:
                raise ValueError(f"{name} must be non-negative, got {value}")
        if 0 < self.prefetch_buffer_size < self.num_threads:
            log.warning(
                "prefetch_buffer_size=%s is smaller than num_threads=%s, so only %s"
                " threads can be reading at a time. Raise prefetch_buffer_size to"
                " use them all.",
                self.prefetch_buffer_size,
                self.num_threads,
                self.prefetch_buffer_size,
            )


@dataclasses.dataclass(slots=True)
class MultiprocessingOptions:
    """Say how many worker processes compute elements.

    Args:
        num_workers: Worker processes, at least 0. 0 computes in this process.
        per_worker_buffer_size: Finished elements (batches, where the pipeline
            batches) that each worker may be ahead by.
        enable_profiling: What the `DataLoader` was given.

    Raises:
        ValueError: A number is negative. Grain accepts that and gives an empty
            stream.
        TypeError: A number is not an int.

    Example:
        >>> MultiprocessingOptions(num_workers=2).per_worker_buffer_size
        1
    """

    num_workers: int = 0
    per_worker_buffer_size: int = 1
    enable_profiling: bool = False

    def __post_init__(self) -> None:
        check_integer("num_workers", self.num_workers)
        check_integer("per_worker_buffer_size", self.per_worker_buffer_size)
        if self.num_workers < 0:
            raise ValueError(
                f"num_workers must be non-negative, got {self.num_workers}. Pass 0 to"
                " compute in this process."
            )
        if self.per_worker_buffer_size < 0:
            raise ValueError(
                "per_worker_buffer_size must be non-negative, got"
                f" {self.per_worker_buffer_size}."
            )
        check_flag("enable_profiling", self.enable_profiling)


def __dir__() -> list[str]:
    return listed(__all__)
