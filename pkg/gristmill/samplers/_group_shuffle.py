"""A shuffle that mixes the records of neighboring groups."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill._base.argument_checks import check_integer
from gristmill._base.types import Int64Array
from gristmill.samplers._group_order import GroupOrder
from gristmill.samplers._planned import NO_SHARDING, PlannedSampler, check_seed
from gristmill.sharding import ShardOptions


class GroupShuffleSampler(PlannedSampler):
    """Shuffle records that are stored in groups, and decode each group about once.

    For sources that decode many records together: row groups of Parquet files,
    chunks of ArrayRecord files written with a group size above 1.  A global shuffle
    would decode a group for each of its records.  This one shuffles all groups in
    every epoch and mixes the records of `window` groups at a time, so a reader needs
    memory for `window` decoded groups.

    Readers that take turns (shards, and the streams of a loader, one for each worker)
    get equal parts of each epoch's shuffled groups.  Two readers decode the same group
    only at the border between their parts: R readers of G groups decode the data
    ``1 + (R - 1) / G`` times.  A loader adapts the sampler to its streams, and computes
    each stream in one worker: use at least as many ``streams`` as workers.

    Args:
        groups: The number of records in each group, in order, such as
            ``source.groups``; integers of at least 0, with a sum of at least 1.
        window: The number of groups whose records are mixed, at least 1. A larger
            window mixes better and needs more memory.
        shard_options: The part of each epoch that this process reads. With
            drop_remainder the last records of an epoch's order are left out.
        num_epochs: The number of epochs, at least 1; None for an endless sampler.
        seed: Seed in [0, 2**32) of the order and of the records' random numbers.
        reshuffle: Whether every epoch has its own order.

    Any position of the order is computed from its index, so resuming takes no time.
    The first use of an epoch shuffles its groups, which takes time and memory in
    proportion to their number.

    Raises:
        ValueError: A number is out of range, or there are no records.
        TypeError: An argument has the wrong type.

    Example:
        >>> sampler = GroupShuffleSampler([3, 3, 2], window=1, num_epochs=1, seed=7)
        >>> sampler.record_keys(0, 1, 8).tolist()
        [7, 6, 2, 0, 1, 5, 3, 4]
    """

    _seed: int

    def __init__(
        self,
        groups: Sequence[int] | Int64Array,
        *,
        window: int = 8,
        shard_options: ShardOptions = NO_SHARDING,
        num_epochs: int | None = None,
        seed: int,
        reshuffle: bool = True,
    ) -> None:
        self._groups = _check_groups(groups)
        super().__init__(int(self._groups.sum()), shard_options, num_epochs)
        check_integer("window", window)
        if window < 1:
            raise ValueError(f"window must be at least 1 group, got {window}.")
        check_seed(seed, shuffle=True)
        self._window = operator.index(window)
        self._seed = seed
        self._shuffle = reshuffle
        length = self._num_records
        if shard_options.drop_remainder:
            length -= length % int(shard_options.shard_count)
        if not length:
            raise ValueError(
                f"{shard_options!r} leaves none of the {self._num_records} records. Use"
                f" at most {self._num_records} shards."
            )
        self._epoch_length = length
        epochs = self._num_epochs
        self._end_index = None if epochs is None else epochs * length
        self._order = self._make_order(int(shard_options.shard_count))

    @property
    def seed(self) -> int:
        """Seed of the order and of the records' random numbers."""
        return self._seed

    def interleaved(self, lanes: int) -> GroupShuffleSampler:
        """Return this sampler for `lanes` readers that take turns.

        Reader r reads the indices that are r modulo `lanes`.  Every epoch has the
        same groups in the same order, split between more or fewer readers.

        Args:
            lanes: The number of readers, at least 1.

        Returns:
            The new sampler.
        """
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._order = other._make_order(lanes)
        return other

    def window_left(self, first: int, step: int) -> int:
        """Return how many of the indices first, first + step, ... share a window.

        A reader should read these records together, because they include neighbors.

        Args:
            first: An index, at least 0.
            step: A multiple of the number of readers that take turns, at least 1.

        Returns:
            The number of indices, at least 1.
        """
        return self._order.window_left(first, step)

    def __repr__(self) -> str:
        import hashlib  # Slow to import.

        hash_of_groups = hashlib.sha256(self._groups.tobytes()).hexdigest()[:16]
        return (
            f"GroupShuffleSampler(num_records={self._num_records}, "
            f"groups={len(self._groups)}, "
            f"hash_of_groups={hash_of_groups}, "
            f"window={self._window}, "
            f"shard_options={self._shard_options!r}, "
            f"num_epochs={self._num_epochs}, "
            f"seed={self._seed}, "
            f"reshuffle={self._shuffle})"
        )

    def _keys(self, first: int, step: int, count: int) -> Int64Array:
        return self._order.keys(first, step, count)

    def _make_order(self, lanes: int) -> GroupOrder:
        return GroupOrder(
            self._groups,
            window=self._window,
            seed=self._seed,
            lanes=lanes,
            length=self._epoch_length,
            reshuffle=self._shuffle,
        )


def _check_groups(groups: Any) -> Int64Array:
    """Return the number of records in each group, int64 of shape (G,)."""
    sizes = np.asarray(groups)
    if sizes.ndim != 1 or (sizes.size and sizes.dtype.kind not in "iu"):
        raise TypeError(
            "groups must be a sequence of integers, the records in each group, got"
            f" {type(groups).__name__}. Pass source.groups."
        )
    if sizes.size and sizes.min() < 0:
        raise ValueError(
            f"groups must be at least 0, got {int(sizes.min())} for group"
            f" {int(sizes.argmin())}."
        )
    return sizes.astype(np.int64)
