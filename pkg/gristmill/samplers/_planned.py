"""What the samplers here have in common: keys follow from indices by arithmetic."""

from __future__ import annotations

import abc
import sys

from gristmill._base.types import Int64Array
from gristmill.records import RecordMetadata, seeded_metadata
from gristmill.samplers._checks import check_block, out_of_bounds


class PlannedSampler(abc.ABC):
    """A sampler of records that have numbers."""

    _num_records: int
    _seed: int | None
    # Indices in all; None where there is no end.
    _max_index: int | None

    @property
    def num_records(self) -> int:
        """Records of the source."""
        return self._num_records

    @property
    def seed(self) -> int | None:
        """Seed of the records' random numbers and of a random order, or None."""
        return self._seed

    def record_keys(self, first: int, step: int, count: int) -> Int64Array:
        """Return the record keys of the indices first, first + step, ...

        Hundreds of times faster than one index at a time.

        Args:
            first: The first global index.
            step: Distance between indices, at least 1. The loader of shard s of S
                passes a multiple of S and a `first` that is s more than one.
            count: How many, at least 0.

        Returns:
            int64 of shape (count,).

        Raises:
            IndexError: An index is out of range.
        """
        check_block(first, step, count, self._max_index)
        return self._keys(first, step, count)

    def __len__(self) -> int:
        return sys.maxsize if self._max_index is None else self._max_index

    def __getitem__(self, index: int) -> RecordMetadata:
        if index < 0 or (self._max_index is not None and index >= self._max_index):
            raise out_of_bounds(index, self._max_index)
        key = self._key(index)
        if self._seed is None:
            return RecordMetadata(index, key)
        return seeded_metadata(index, key, self._seed + index)

    @abc.abstractmethod
    def _keys(self, first: int, step: int, count: int) -> Int64Array:
        """The keys of `record_keys`, for indices that are in range."""

    @abc.abstractmethod
    def _key(self, index: int) -> int:
        """The key of an index in range."""
