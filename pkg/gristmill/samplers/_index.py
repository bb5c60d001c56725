"""Records of a shard, optionally shuffled in each epoch."""

from __future__ import annotations

import operator
from typing import Any

from gristmill._base.argument_checks import check_integer
from gristmill._base.types import Int64Array
from gristmill._core import KeyPlan
from gristmill.records import RecordMetadata, seeded_metadata
from gristmill.samplers._planned import (
    NO_SHARDING,
    PlannedSampler,
    check_seed,
    keys_by_lane,
)
from gristmill.sharding import NoSharding, ShardOptions, even_split


class IndexSampler(PlannedSampler):
    """Reads the records of a shard for some epochs, optionally shuffled.

    Each shard owns a contiguous part of the records.  With `shuffle` every epoch
    has its own order, and a shard shuffles only its own part.

    Args:
        num_records: The number of records of the source, at least 1.
        shard_options: The part of the records that this process reads.
        shuffle: Whether to shuffle. Needs a seed.
        num_epochs: The number of epochs, at least 1; None for an endless sampler.
        seed: Seed in [0, 2**32) of the order and of the records' random numbers,
            or None for no generators.

    Raises:
        ValueError: A number is out of range, or `shuffle` is given without a seed.
        TypeError: An argument has the wrong type.

    Example:
        >>> sampler = IndexSampler(num_records=5, shuffle=True, num_epochs=1, seed=1)
        >>> sorted(sampler[i].record_key for i in range(5))
        [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NO_SHARDING,
        shuffle: bool = False,
        num_epochs: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_records, shard_options, num_epochs)
        check_seed(seed, shuffle)
        self._shard_count = int(shard_options.shard_count)
        self._shuffle = shuffle
        self._seed = seed
        num_records, num_epochs = self._num_records, self._num_epochs
        self._end_index = None if num_epochs is None else num_epochs * num_records
        keys = KeyPlan.range(num_records)
        # An instance of NoSharding reads everything, even if a subclass sets other
        # numbers. Grain decides by the type, too.
        if not isinstance(shard_options, NoSharding):
            keys = keys.shard(*even_split(num_records, shard_options))
            if num_epochs is not None and shard_options.drop_remainder:
                self._end_index = len(keys) * self._shard_count * num_epochs
        self._epoch_length = len(keys) * self._shard_count
        if shuffle:
            assert seed is not None
            keys = keys.shuffle(seed)
        self._record_keys = keys

    @property
    def shuffle(self) -> bool:
        """True if every epoch has its own random order."""
        return self._shuffle

    def plan(self) -> KeyPlan:
        """Return the record keys in the order of this shard's own positions.

        Global index i reads position ``i // shard_count``.
        """
        return self._record_keys

    def _with_shard_options(self, shard_options: ShardOptions) -> IndexSampler:
        """Return the sampler of a shard, of the same records, order and seed."""
        return IndexSampler(
            num_records=self._num_records,
            shard_options=shard_options,
            shuffle=self._shuffle,
            num_epochs=self._num_epochs,
            seed=self._seed,
        )

    def _keys(self, first: int, step: int, count: int) -> Int64Array:
        if count and not len(self._record_keys):
            raise self._empty_shard_error()

        def fill(index: int, step: int, out: Int64Array) -> None:
            self._record_keys.fill(
                index // self._shard_count, step // self._shard_count, out
            )

        return keys_by_lane(self._shard_count, first, step, count, fill)

    def __repr__(self) -> str:
        return (
            f"IndexSampler(num_records={self._num_records}, "
            f"shard_options={self._shard_options!r}, "
            f"shuffle={self._shuffle}, "
            f"num_epochs={self._num_epochs}, "
            f"seed={self._seed})"
        )

    # Defined next to `__getitem__`, which it must match: see `reads_in_blocks`.
    record_keys = PlannedSampler.record_keys

    # Like the inherited method, but does not call `_key` for each record.
    def __getitem__(self, index: int) -> RecordMetadata:
        end = self._end_index
        if index < 0 or (end is not None and index >= end):
            raise self._index_error(index)
        position = index // self._shard_count
        try:
            key = self._record_keys.key(position)
        except TypeError:  # Over 64 bits, or not an integer.
            key = self._record_keys.key(self._wrap_position(position))
        except ZeroDivisionError:
            raise self._empty_shard_error() from None
        if self._seed is None:
            return RecordMetadata(index, key)
        return seeded_metadata(index, key, self._seed + index)

    def _wrap_position(self, position: Any) -> int:
        """Return the 64-bit position that has the same key.

        Raises:
            TypeError: `position` is not an integer.
        """
        check_integer("index", position)
        # Epochs are shuffled by their number modulo 2**32.
        return operator.index(position) % (len(self._record_keys) << 32)

    def _empty_shard_error(self) -> ZeroDivisionError:
        # Grain raises the same type.
        return ZeroDivisionError(
            f"{self._shard_options!r} owns none of the {self._num_records} records. Use"
            f" at most {self._num_records} shards."
        )
