"""Chooses the numbers of workers and of buffered elements by the elements' size."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill._base import log
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill.options import MultiprocessingOptions, ReadOptions

MEBIBYTE = 1024 * 1024
MAX_BUFFERED = 1000


@dataclasses.dataclass(slots=True)
class PerformanceConfig:
    """Options that `pick_performance_config` chose.

    Args:
        multiprocessing_options: For `mp_prefetch`.
        read_options: For `to_iter_dataset`.

    Example:
        >>> config = PerformanceConfig(read_options=ReadOptions(num_threads=2))
        >>> ds = gristmill.MapDataset.range(3).to_iter_dataset(config.read_options)
        >>> list(ds)
        [0, 1, 2]
    """

    multiprocessing_options: MultiprocessingOptions | None = None
    read_options: ReadOptions | None = None


def pick_performance_config(
    ds: IterDataset[Any],
    *,
    ram_budget_mb: int,
    max_workers: int | None,
    max_buffer_size: int | None,
    samples_to_check: int = 5,
) -> PerformanceConfig:
    """Choose the most workers and the largest buffers that fit into memory.

    It reads a few elements of the dataset and measures them.

    Args:
        ds: The dataset.
        ram_budget_mb: Memory for waiting elements, in MiB, separately for workers and
            for buffers.
        max_workers: The most workers; None for the number of CPUs.
        max_buffer_size: The most elements in a buffer; None for 1000.
        samples_to_check: The number of elements to read.  If the dataset has fewer, the
            maximum of workers and buffers is chosen.

    Returns:
        The number of workers and the sizes of buffers.

    Example:
        >>> ds = gristmill.MapDataset.range(100).batch(10).to_iter_dataset()
        >>> config = gristmill.experimental.pick_performance_config(
        ...     ds, ram_budget_mb=1024, max_workers=4, max_buffer_size=None
        ... )
        >>> config.multiprocessing_options.num_workers
        4
    """
    worker_limit = (os.cpu_count() or 1) if max_workers is None else max_workers
    buffer_limit = MAX_BUFFERED if max_buffer_size is None else max_buffer_size
    # Buffers of to_iter_dataset hold elements of its parent.
    buffered = _find_map_datasets(ds)
    workers = _count_fitting([ds], ram_budget_mb, worker_limit, samples_to_check)
    buffer_size = _count_fitting(
        buffered, ram_budget_mb, buffer_limit, samples_to_check
    )
    return PerformanceConfig(
        multiprocessing_options=MultiprocessingOptions(num_workers=workers),
        read_options=ReadOptions(prefetch_buffer_size=buffer_size),
    )


def _count_fitting(
    datasets: Sequence[Any], budget_mb: int, maximum: int, samples: int
) -> int:
    """Return how many elements of each dataset fit, up to `maximum`, by a mean size."""
    if not datasets:
        return maximum
    samples_of_each = math.ceil(samples / len(datasets))
    sizes = [
        _size_bytes(element)
        for dataset in datasets
        for element in itertools.islice(dataset, samples_of_each)
    ]
    if len(sizes) < samples:
        log.warning(
            "%d elements are too few to estimate their size, expected samples_to_check,"
            " %d. ram_budget_mb does not limit workers and buffers.",
            len(sizes),
            samples,
        )
        return maximum
    size_mb = float(np.mean(sizes)) / MEBIBYTE
    if not size_mb:
        return maximum
    return min(int(budget_mb / (size_mb * len(datasets))), maximum)


def _size_bytes(element: Any) -> int:
    """Return the approximate size of an element in bytes."""
    if isinstance(element, dict):
        return sum(map(_size_bytes, element.values()))
    if isinstance(element, (list, tuple)):
        return sum(map(_size_bytes, element))
    if isinstance(element, np.ndarray):
        return int(element.nbytes)
    return sys.getsizeof(element)


def _find_map_datasets(dataset: Any) -> list[Any]:
    """Return the `MapDataset`s that a chain iterates over."""
    if isinstance(dataset, PrefetchIterDataset):
        return [dataset._parent]
    return [
        input_dataset
        for parent in dataset._parents
        for input_dataset in _find_map_datasets(parent)
    ]
