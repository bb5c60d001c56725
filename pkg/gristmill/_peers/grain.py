"""Functions and protocols of Grain's internal modules, with Grain's arguments.

Programs import them by Grain's names; see `gristmill._base.grain_names`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._engine.arguments import check_worker_count
from gristmill.options import MultiprocessingOptions

T = TypeVar("T")


def determine_worker_count(input_worker_count: int | None) -> int:
    """Return the given number of workers, or the number of CPU cores for None."""
    count = check_worker_count(input_worker_count)
    if count == "auto":
        raise ValueError('Expected a number of workers or None, got "auto".')
    return count


def multiprocess_prefetch(
    ds: IterDataset[T],
    num_workers: int = 0,
    buffer_size: int = 1,
    worker_init_fn: Callable[[int, int], None] | None = None,
    sequential_slice: bool = False,
) -> IterDataset[T]:
    """Compute a chain in worker processes; see `IterDataset.mp_prefetch`."""
    options = MultiprocessingOptions(num_workers, buffer_size)
    return ds.mp_prefetch(options, worker_init_fn, sequential_slice)


@runtime_checkable
class SupportsInPlaceSlicing(Protocol):
    """A dataset that can split itself between workers and hosts."""

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Reduce the dataset to the elements of a slice."""


@runtime_checkable
class SupportsSlicedStateManagement(Protocol):
    """An iterator over parts whose positions can be saved separately."""

    def get_shard_states(self) -> Sequence[Any]:
        """Return ``{"exhausted": 0 or 1, "state": state}`` of each part."""

    def set_shard_states(self, shard_states: Sequence[Any]) -> None:
        """Continue at positions of parts that `get_shard_states` returned."""
