"""Base class of the samplers: checks of arguments, and keys computed by arithmetic.

Most error messages are Grain's.
"""

from __future__ import annotations

import abc
import copy
import math
import operator
import sys
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._base.types import Int64Array
from gristmill.records import RecordMetadata, seeded_metadata
from gristmill.sharding import NoSharding, ShardOptions

NO_SHARDING = NoSharding()


class PlannedSampler(abc.ABC):
    """A sampler of numbered records; a subclass sets its seed, epoch length and end."""

    _seed: int | None
    # Number of indices in an epoch, of all shards together.
    _epoch_length: int
    # The end of the valid indices, exclusive: Grain's `_max_index`.  None if endless.
    _end_index: int | None
    # True if each epoch has its own order.
    _shuffle: bool = False

    def __init__(
        self, num_records: int, shard_options: ShardOptions, num_epochs: int | None
    ) -> None:
        advice = " Pass len(source)." if hasattr(num_records, "__len__") else ""
        check_integer("num_records", num_records, advice)
        # Python's own int, because NumPy's would overflow later.
        self._num_records = operator.index(num_records)
        if self._num_records >= 2**63:
            raise OverflowError(
                f"num_records must be less than 2**63, got {num_records}."
            )
        if self._num_records <= 0:
            raise ValueError(
                "Invalid number of records in Sampler. "
                f"Got {num_records} records, but number of records "
                "must be greater than 0."
            )
        if not isinstance(shard_options, ShardOptions):
            raise TypeError(
                "shard_options must be a ShardOptions, got"
                f" {type(shard_options).__name__}. Pass NoSharding() or"
                " ShardOptions(shard_index, shard_count)."
            )
        self._shard_options = shard_options
        if num_epochs is not None:
            check_integer("num_epochs", num_epochs)
            num_epochs = operator.index(num_epochs)
            if num_epochs <= 0:
                raise ValueError(
                    "Invalid number of epochs in Index Sampler."
                    f"Got {num_epochs} epochs, but number of epochs "
                    "must be greater than 0."
                )
        self._num_epochs = num_epochs

    @property
    def num_records(self) -> int:
        """The number of records of the source."""
        return self._num_records

    @property
    def seed(self) -> int | None:
        """Seed of the records' random numbers and of a random order, or None."""
        return self._seed

    def record_keys(self, first: int, step: int, count: int) -> Int64Array:
        """Return the record keys of the indices first, first + step, ...

        This is hundreds of times faster than one index at a time.

        Args:
            first: The first global index.
            step: Distance between indices, at least 1. The loader of shard s of S
                passes a multiple of S and a `first` that is s modulo S.
            count: The number of indices, at least 0.

        Returns:
            int64 of shape (count,).

        Raises:
            IndexError: An index is out of range.
        """
        if step <= 0 or count < 0:
            raise ValueError(
                "record_keys needs a positive step and a count of at least 0, got"
                f" step={step} and count={count}."
            )
        last, end = first + step * (count - 1), self._end_index
        if first < 0 or (count and end is not None and last >= end):
            raise self._index_error(first if first < 0 else last)
        return self._keys(first, step, count)

    def __len__(self) -> int:
        # The largest length that Python allows stands for no end.
        return sys.maxsize if self._end_index is None else self._end_index

    def __getitem__(self, index: int) -> RecordMetadata:
        end = self._end_index
        if index < 0 or (end is not None and index >= end):
            raise self._index_error(index)
        key = self._key(index)
        if self._seed is None:
            return RecordMetadata(index, key)
        return seeded_metadata(index, key, self._seed + index)

    @abc.abstractmethod
    def _keys(self, first: int, step: int, count: int) -> Int64Array:
        """Return the result of `record_keys` for indices that are in range."""

    def _key(self, index: int) -> int:
        return int(self._keys(index, 1, 1)[0])

    def _first_index(self, epoch: int) -> int:
        """Return the first index of a loader's epoch, which has all ``num_epochs``."""
        return epoch * (self._num_epochs or 1) * self._epoch_length

    def _endless(self) -> Self:
        """Return this sampler without an end."""
        endless = copy.copy(self)
        endless._end_index = None
        return endless

    def _index_error(self, index: int) -> IndexError:
        return IndexError(
            f"RecordMetadata object index is out of bounds; Got index {index},"
            f" allowed indices should be in [0, {self._end_index}]"
        )


def keys_by_lane(
    lanes: int,
    first: int,
    step: int,
    count: int,
    fill: Callable[[int, int, Int64Array], None],
) -> Int64Array:
    """Return the keys of `count` indices first, first + step, ...

    Lane r has the indices that are r modulo `lanes`, so any step splits into a few
    even walks that stay in one lane. `fill` gets the first index of a walk, a step that
    is a multiple of `lanes`, and a contiguous array to fill with keys.
    """
    keys = np.empty(count, np.int64)
    walks = lanes // math.gcd(step, lanes)
    if walks == 1:
        fill(first, step, keys)
        return keys
    for walk in range(min(walks, count)):
        # A copy, because `fill` needs a contiguous array.
        part = keys[walk::walks].copy()
        fill(first + walk * step, step * walks, part)
        keys[walk::walks] = part
    return keys


def check_seed(seed: Any, shuffle: bool) -> None:
    """Raise an error if `seed` is not a seed; None is valid without shuffling."""
    check_flag("shuffle", shuffle)
    if seed is None:
        if shuffle:
            raise ValueError("Shuffling requires specifying a seed.")
        return
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(f"Expected seed of int type. Got seed with type {type(seed)}")
    if seed < 0 or seed.bit_length() > 32:
        raise ValueError("Seed should be positive 32-bit integer.")
