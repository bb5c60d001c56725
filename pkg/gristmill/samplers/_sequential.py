"""Records in the order of the source."""

from __future__ import annotations

import operator

import numpy as np

from gristmill._base.argument_checks import check_integer
from gristmill._base.types import Int64Array
from gristmill._core import KeyPlan
from gristmill.samplers._planned import NO_SHARDING, PlannedSampler
from gristmill.sharding import ShardOptions


class SequentialSampler(PlannedSampler):
    """Reads the records once, in order.

    Args:
        num_records: The number of records of the source, at least 1.
        shard_options: With drop_remainder, ``num_records % shard_count`` records at the
            end are left out. The loader decides which of the others a process reads.
        seed: Seed in [0, 2**128 - num_records] of the records' random numbers, or
            None for no generators.

    Raises:
        ValueError: A number is out of range.
        TypeError: An argument has the wrong type.

    Example:
        >>> SequentialSampler(num_records=8)[3].record_key
        3
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NO_SHARDING,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_records, shard_options, num_epochs=1)
        num_records = self._num_records
        if seed is not None:
            check_integer("seed", seed)
            seed = operator.index(seed)
            # The key of a record's generator, `seed` plus its index, has 128 bits.
            if not 0 <= seed <= 2**128 - num_records:
                raise ValueError(
                    f"seed must be in [0, 2**128 - num_records], got {seed}."
                )
        self._epoch_length = num_records
        if shard_options.drop_remainder:
            self._epoch_length -= num_records % int(shard_options.shard_count)
        self._end_index = self._epoch_length
        self._seed = seed

    def plan(self) -> KeyPlan:
        """Return the record keys in the order of global indices."""
        return KeyPlan.range(self._num_records)

    def __repr__(self) -> str:
        return (
            f"SequentialSampler(num_records={self._num_records}, "
            f"shard_options={self._shard_options!r})"
        )

    def _keys(self, first: int, step: int, count: int) -> Int64Array:
        end = first + step * count
        keys = np.arange(first, end, step, dtype=np.int64)
        # Only a sampler without an end, see `_endless`, gets indices after its epoch.
        return keys if end <= self._epoch_length else keys % self._epoch_length

    def _key(self, index: int) -> int:
        return operator.index(index) % self._epoch_length
