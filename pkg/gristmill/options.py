"""Options for reading ahead, and for worker processes."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias, TypeGuard

from gristmill._base import log
from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._base.lazy_names import public_names

__all__ = ["MultiprocessingOptions", "ReadOptions"]

# A number of workers, or "auto" for one that follows what the consumer waits for.
WorkerCount: TypeAlias = int | Literal["auto"]
# The streams of "auto" if one worker computes each stream.  It is the same on every
# machine, because streams define the order.
AUTO_STREAMS = 8


def check_num_workers(count: object) -> None:
    """Raise TypeError if `num_workers` is neither an int nor "auto"."""
    if not is_auto(count):
        advice = ' Pass "auto" to follow what the consumer waits for.'
        check_integer("num_workers", count, advice)


def is_auto(count: object) -> TypeGuard[Literal["auto"]]:
    """Return whether a number of workers is "auto"."""
    return isinstance(count, str) and count == "auto"


@dataclasses.dataclass(slots=True)
class ReadOptions:
    """Options for reading ahead in one process.

    Args:
        num_threads: Threads that read if reads wait for a disk or a network; at least
            0.  0 reads each record when it is needed.  Without workers, the same number
            of threads compute leaves that transforms defer to the batch, such as
            decoded images: at most one for each core, and one if this is 0.
        prefetch_buffer_size: Elements read ahead by all threads of a process together,
            at least 0.  0 disables reading ahead.  Records of files at URLs are read
            further ahead, up to 256 MB, if long requests need that.

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
    """Options for worker processes.

    Args:
        num_workers: The number of worker processes, at least 0.  0 computes in this
            process.  "auto" starts one, and adds or ends some while the consumer runs,
            see `DataLoader`.
        per_worker_buffer_size: Finished elements, or batches if the pipeline has
            batches, that each worker may compute ahead.
        enable_profiling: The argument of the `DataLoader`.

    Raises:
        ValueError: A number is negative.  Grain accepts that and returns an empty
            stream.
        TypeError: A number is not an int.

    Example:
        >>> MultiprocessingOptions(num_workers=2).per_worker_buffer_size
        1
    """

    num_workers: WorkerCount = 0
    per_worker_buffer_size: int = 1
    enable_profiling: bool = False

    def __post_init__(self) -> None:
        check_integer("per_worker_buffer_size", self.per_worker_buffer_size)
        check_num_workers(self.num_workers)
        if self.num_workers != "auto" and self.num_workers < 0:
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
    return public_names(__all__)
