"""Which record comes next.  A sampler knows numbers of records and reads no data."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gristmill._base.checks import check_integer
from gristmill._base.listing import listed
from gristmill._base.types import Int64Array
from gristmill._core import KeyPlan
from gristmill.records import RecordMetadata, seeded_metadata
from gristmill.samplers._checks import (
    check_block,
    check_seed,
    check_shard_options,
    checked_groups,
    checked_num_epochs,
    checked_num_records,
    out_of_bounds,
)
from gristmill.samplers._group_order import GroupOrder
from gristmill.sharding import NoSharding, ShardOptions, even_split

__all__ = ["GroupShuffleSampler", "IndexSampler", "Sampler", "SequentialSampler"]

_NO_SHARDING = NoSharding()


class Sampler(Protocol):
    """What a loader needs of a sampler.

    ``__len__`` is optional: without it the loader searches for the first index
    that raises IndexError.  ``__repr__`` should say everything that decides the
    order, because states are compared by it.

    A sampler may also have ``record_keys(first, step, count)``, which returns the
    record keys of the global indices first, first + step, ... as int64 of shape
    (count,), as `IndexSampler` does; and ``interleaved(lanes)``, which returns the
    sampler whose order suits readers that take turns, as `GroupShuffleSampler` does.
    Each stream of a loader is then computed by one worker.
    """

    def __getitem__(self, index: int, /) -> RecordMetadata:
        """Return the metadata of a global index; IndexError after the last one."""


def reads_in_blocks(sampler: object) -> bool:
    """Whether ``sampler.record_keys`` stands for ``sampler[index]``.

    A subclass that overrides ``__getitem__`` alone changes what it returns, so the
    inherited ``record_keys`` no longer speaks for it.
    """
    for cls in type(sampler).__mro__:
        if "record_keys" in vars(cls):
            return True
        if "__getitem__" in vars(cls):
            return False
    return False


class SequentialSampler:
    """Go through the records once, in order.

    Args:
        num_records: Records of the source, at least 1.
        shard_options: Decides, with drop_remainder, how many records at the end
            are left out. Which of the others a process reads is up to the loader.
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
        shard_options: ShardOptions = _NO_SHARDING,
        seed: int | None = None,
    ) -> None:
        num_records = checked_num_records(num_records)
        check_shard_options(shard_options)
        if seed is not None:
            check_integer("seed", seed)
            seed = operator.index(seed)
            if not 0 <= seed <= 2**128 - num_records:
                raise ValueError(
                    f"seed must be in [0, 2**128 - num_records], got {seed}."
                )
        self._num_records = num_records
        self._shard_options = shard_options
        self._max_index = num_records
        if shard_options.drop_remainder:
            self._max_index -= num_records % int(shard_options.shard_count)
        self._seed = seed

    @property
    def num_records(self) -> int:
        """Records of the source."""
        return self._num_records

    @property
    def seed(self) -> int | None:
        """Seed of the records' random numbers, or None."""
        return self._seed

    def plan(self) -> KeyPlan:
        """Return the record keys in the order of global indices."""
        return KeyPlan.range(self._num_records)

    def record_keys(self, first: int, step: int, count: int) -> Int64Array:
        """Return the record keys of the indices first, first + step, ...

        Args:
            first: The first global index.
            step: Distance between indices, at least 1.
            count: How many, at least 0.

        Returns:
            int64 of shape (count,).

        Raises:
            IndexError: An index is out of range.
        """
        check_block(first, step, count, self._max_index)
        return np.arange(first, first + step * count, step, dtype=np.int64)

    def __len__(self) -> int:
        return self._max_index

    def __repr__(self) -> str:
        return (
            f"SequentialSampler(num_records={self._num_records}, "
            f"shard_options={self._shard_options!r})"
        )

    def __getitem__(self, index: int) -> RecordMetadata:
        if not 0 <= index < self._max_index:
            raise out_of_bounds(index, self._max_index)
        if self._seed is None:
            return RecordMetadata(index, index)
        return seeded_metadata(index, index, self._seed + index)


class IndexSampler:
    """Go through the records of a shard, shuffled if asked, for some epochs.

    Each shard owns a contiguous part of the records.  With `shuffle` every epoch
    has its own order, and a shard shuffles only its own part.

    Args:
        num_records: Records of the source, at least 1.
        shard_options: Which part of the records this process reads.
        shuffle: Whether to shuffle. Needs a seed.
        num_epochs: Times to go through the records, at least 1, or None for ever.
        seed: Seed in [0, 2**32) of the order and of the records' random numbers,
            or None for no generators.

    Raises:
        ValueError: A number is out of range, or `shuffle` comes without a seed.
        TypeError: An argument has the wrong type.

    Example:
        >>> sampler = IndexSampler(num_records=5, shuffle=True, num_epochs=1, seed=1)
        >>> sorted(sampler[i].record_key for i in range(5))
        [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = _NO_SHARDING,
        shuffle: bool = False,
        num_epochs: int | None = None,
        seed: int | None = None,
    ) -> None:
        num_records = checked_num_records(num_records)
        check_shard_options(shard_options)
        num_epochs = checked_num_epochs(num_epochs)
        check_seed(seed, shuffle)
        self._num_records = num_records
        self._shard_options = shard_options
        self._shard_count = int(shard_options.shard_count)
        self._shuffle = shuffle
        self._num_epochs = num_epochs
        self._seed = seed
        self._max_index = None if num_epochs is None else num_epochs * num_records

        keys = KeyPlan.range(num_records)
        # An instance of NoSharding reads everything even where a subclass of it
        # has other numbers; Grain decides by the type as well.
        if not isinstance(shard_options, NoSharding):
            keys = keys.shard(*even_split(num_records, shard_options))
            if num_epochs is not None and shard_options.drop_remainder:
                self._max_index = len(keys) * self._shard_count * num_epochs
        if shuffle:
            assert seed is not None
            keys = keys.shuffle(seed)
        self._record_keys = keys

    @property
    def num_records(self) -> int:
        """Records of the source."""
        return self._num_records

    @property
    def seed(self) -> int | None:
        """Seed of the order and of the records' random numbers, or None."""
        return self._seed

    @property
    def shuffle(self) -> bool:
        """Whether every epoch has its own random order."""
        return self._shuffle

    def plan(self) -> KeyPlan:
        """Return the record keys in the order of this shard's own positions.

        Global index i reads position ``i // shard_count`` of it.
        """
        return self._record_keys

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
        if count and not len(self._record_keys):
            raise self._owns_nothing()
        keys = np.empty(count, np.int64)
        shards = self._shard_count
        # Indices that are a multiple of the shard count apart read positions that
        # are equally far apart, so any step splits into this many even walks.
        walks = shards // math.gcd(step, shards)
        if walks == 1:
            self._record_keys.fill(first // shards, step // shards, keys)
            return keys
        for walk in range(min(walks, count)):
            part = np.empty(len(range(walk, count, walks)), np.int64)
            start = (first + walk * step) // shards
            self._record_keys.fill(start, step * walks // shards, part)
            keys[walk::walks] = part
        return keys

    def __len__(self) -> int:
        return sys.maxsize if self._max_index is None else self._max_index

    def __repr__(self) -> str:
        return (
            f"IndexSampler(num_records={self._num_records}, "
            f"shard_options={self._shard_options!r}, "
            f"shuffle={self._shuffle}, "
            f"num_epochs={self._num_epochs}, "
            f"seed={self._seed})"
        )

    def __getitem__(self, index: int) -> RecordMetadata:
        if index < 0 or (self._max_index is not None and index >= self._max_index):
            raise out_of_bounds(index, self._max_index)
        position = index // self._shard_count
        try:
            key = self._record_keys.key(position)
        except TypeError:
            key = self._record_keys.key(self._same_key(position))
        except ZeroDivisionError:
            raise self._owns_nothing() from None
        if self._seed is None:
            return RecordMetadata(index, key)
        return seeded_metadata(index, key, self._seed + index)

    def _same_key(self, position: Any) -> int:
        """Return a position in int64 that has the key of one beyond it."""
        check_integer("index", position)
        # Epochs are shuffled by their number modulo 2**32.
        return operator.index(position) % (len(self._record_keys) << 32)

    def _owns_nothing(self) -> ZeroDivisionError:
        # The kind of exception is Grain's.
        return ZeroDivisionError(
            f"{self._shard_options!r} owns none of the {self._num_records} records. Use"
            f" at most {self._num_records} shards."
        )


class GroupShuffleSampler:
    """Shuffle records that are stored in groups, and decode each group about once.

    For sources that decode many records together: row groups of Parquet files,
    chunks of ArrayRecord files written with a group size above 1.  A global shuffle
    would decode a group for each of its records.  This one shuffles all groups in
    every epoch and mixes the records of `window` groups at a time, so a reader needs
    memory for `window` decoded groups.

    Readers that take turns (shards, and the streams of a loader, one for each worker)
    get equal parts of each epoch's shuffled groups, so that no two of them decode the
    same group, but for one at each border between two parts: ``1 + (R - 1) / G`` times
    the data is decoded by R readers of G groups.  A loader adapts the sampler to its
    streams itself, and computes each stream in one worker: use no fewer ``streams``
    than workers.

    Args:
        groups: Records in each group, in order, such as ``source.groups``; integers of
            at least 0, with a sum of at least 1.
        window: Groups whose records are mixed, at least 1. More mix better and need
            more memory.
        shard_options: Which part of each epoch this process reads. With
            drop_remainder the last records of an epoch's order are left out.
        num_epochs: Times to go through the records, at least 1, or None for ever.
        seed: Seed in [0, 2**32) of the order and of the records' random numbers.
        reshuffle: Whether every epoch has its own order.

    Any place of the order is computed from its index, so resuming takes no time; an
    epoch's first use sorts out its groups and takes time and memory in proportion to
    their number.

    Raises:
        ValueError: A number is out of range, or there are no records.
        TypeError: An argument has the wrong type.

    Example:
        >>> sampler = GroupShuffleSampler([3, 3, 2], window=1, num_epochs=1, seed=7)
        >>> sampler.record_keys(0, 1, 8).tolist()
        [7, 6, 2, 0, 1, 5, 3, 4]
    """

    def __init__(
        self,
        groups: Sequence[int] | Int64Array,
        *,
        window: int = 8,
        shard_options: ShardOptions = _NO_SHARDING,
        num_epochs: int | None = None,
        seed: int,
        reshuffle: bool = True,
    ) -> None:
        self._groups = checked_groups(groups)
        check_integer("window", window)
        if window < 1:
            raise ValueError(f"window must be at least 1 group, got {window}.")
        check_shard_options(shard_options)
        num_epochs = checked_num_epochs(num_epochs)
        check_seed(seed, shuffle=True)
        self._num_records = checked_num_records(int(self._groups.sum()))
        self._window = operator.index(window)
        self._shard_options = shard_options
        self._num_epochs = num_epochs
        self._seed = seed
        self._reshuffle = reshuffle
        length = self._num_records
        if shard_options.drop_remainder:
            length -= length % int(shard_options.shard_count)
        if not length:
            raise ValueError(
                f"{shard_options!r} leaves none of the {self._num_records} records. Use"
                f" at most {self._num_records} shards."
            )
        self._epoch_length = length
        self._max_index = None if num_epochs is None else num_epochs * length
        self._order = self._order_of(int(shard_options.shard_count))

    @property
    def num_records(self) -> int:
        """Records of the source."""
        return self._num_records

    @property
    def seed(self) -> int:
        """Seed of the order and of the records' random numbers."""
        return self._seed

    def interleaved(self, lanes: int) -> GroupShuffleSampler:
        """Return this sampler for `lanes` readers that take turns.

        Reader r reads the indices that are r modulo `lanes`.  Every epoch has the
        same groups in the same order, dealt out to more or fewer readers.

        Args:
            lanes: Readers, at least 1.
        """
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._order = other._order_of(lanes)
        return other

    def record_keys(self, first: int, step: int, count: int) -> Int64Array:
        """Return the record keys of the indices first, first + step, ...

        Args:
            first: The first global index.
            step: Distance between indices, at least 1.
            count: How many, at least 0.

        Returns:
            int64 of shape (count,).

        Raises:
            IndexError: An index is out of range.
        """
        check_block(first, step, count, self._max_index)
        return self._order.keys(first, step, count)

    def __len__(self) -> int:
        return sys.maxsize if self._max_index is None else self._max_index

    def __repr__(self) -> str:
        import hashlib  # Slow to import.

        sizes = hashlib.sha256(self._groups.tobytes()).hexdigest()[:16]
        return (
            f"GroupShuffleSampler(num_records={self._num_records}, "
            f"groups={len(self._groups)}, "
            f"hash_of_groups={sizes}, "
            f"window={self._window}, "
            f"shard_options={self._shard_options!r}, "
            f"num_epochs={self._num_epochs}, "
            f"seed={self._seed}, "
            f"reshuffle={self._reshuffle})"
        )

    def __getitem__(self, index: int) -> RecordMetadata:
        if index < 0 or (self._max_index is not None and index >= self._max_index):
            raise out_of_bounds(index, self._max_index)
        key = int(self._order.keys(index, 1, 1)[0])
        return seeded_metadata(index, key, self._seed + index)

    def _order_of(self, lanes: int) -> GroupOrder:
        return GroupOrder(
            self._groups,
            window=self._window,
            seed=self._seed,
            lanes=lanes,
            length=self._epoch_length,
            reshuffle=self._reshuffle,
        )


def __dir__() -> list[str]:
    return listed(__all__)
