"""Records distributed to ranks in turn, with equally many full batches for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill._base.argument_checks import check_instance
from gristmill._base.padding_masks import check_mask_key, with_mask
from gristmill._base.types import Int64Array
from gristmill._core import KeyPlan
from gristmill.samplers._planned import NO_SHARDING, PlannedSampler, check_seed
from gristmill.sharding import AnyRemainder, Remainder, ShardOptions
from gristmill.transforms import MapWithIndex


class DistributedSampler(PlannedSampler):
    """Distribute records so that all ranks have equally many full batches.

    With `shuffle` every epoch has its own order of all records, which is the same on
    every rank.  Rank r of R takes the positions r, r + R, ... of that order.  A step of
    all ranks together, of R batches, therefore has the same records for any R, as long
    as R times `batch_size` is the same.  Batches do not span epochs.  Memory use does
    not depend on the number of records.

    A loader with several streams makes batches in each of them.  In this case, pass the
    size of a batch times the number of streams, which is ``worker_count`` unless
    ``streams=`` is given.  The loader warns about other sizes, except for 1.

    Args:
        num_records: The number of records of the source, at least 1.
        shard_options: This rank and the number of ranks. drop_remainder is ignored.
        batch_size: Elements that each rank takes at once, at least 1: the size of its
            batches, times the loader's streams. With 1 all ranks have equally many
            elements, and the last batch may have fewer elements.
        shuffle: Whether to shuffle. Needs a seed.
        num_epochs: The number of epochs, at least 1; None for an endless sampler.
        seed: Seed in [0, 2**32) of the order and of the records' random numbers,
            or None for no generators.
        remainder: How to treat records that do not fill a batch of every rank, a
            `sharding.Remainder` or its value. For "pad", `WithMask` adds the mask to
            elements.

    Raises:
        ValueError: A number is out of range, `shuffle` is given without a seed, or an
            epoch would be empty.
        TypeError: An argument has the wrong type.

    Example:
        >>> rank = ShardOptions(shard_index=1, shard_count=2)
        >>> sampler = DistributedSampler(7, rank, batch_size=2, remainder="wrap")
        >>> sampler.record_keys(first=1, step=2, count=4).tolist()
        [1, 3, 5, 0]
    """

    def __init__(
        self,
        num_records: int,
        shard_options: ShardOptions = NO_SHARDING,
        batch_size: int = 1,
        shuffle: bool = False,
        num_epochs: int | None = None,
        seed: int | None = None,
        remainder: AnyRemainder = Remainder.DROP,
    ) -> None:
        super().__init__(num_records, shard_options, num_epochs)
        check_seed(seed, shuffle)
        self._shuffle = shuffle
        self._seed = seed
        self._remainder = Remainder(remainder)
        ranks, records = int(shard_options.shard_count), self._num_records
        self._batches_per_epoch = self._remainder.batches_per_rank(
            records, ranks, batch_size
        )
        self._batch_size = int(batch_size)
        if not self._batches_per_epoch:
            raise ValueError(
                f"remainder='drop' needs at least {self._batch_size * ranks} records, a"
                f" batch of {self._batch_size} for each of {ranks} ranks, got"
                f" {records}. Pass remainder='wrap' or 'pad', or a smaller batch_size."
            )
        self._epoch_length = self._batches_per_epoch * self._batch_size * ranks
        if self._epoch_length >= 2**63:
            raise OverflowError(
                f"An epoch of {ranks} ranks with batches of {self._batch_size} has"
                f" {self._epoch_length} positions, expected less than 2**63."
            )
        self._end_index = None
        if self._num_epochs is not None:
            self._end_index = self._num_epochs * self._epoch_length
        # The number of records in an epoch.  Its other positions repeat the first ones.
        self._records_per_epoch = min(records, self._epoch_length)
        keys = KeyPlan.range(records)
        if shuffle:
            assert seed is not None
            keys = keys.shuffle(seed)
        self._record_keys = keys.take(0, 1, self._records_per_epoch)

    @property
    def shuffle(self) -> bool:
        """True if every epoch has its own random order."""
        return self._shuffle

    @property
    def shard_options(self) -> ShardOptions:
        """This rank and the number of ranks."""
        return self._shard_options

    @property
    def batch_size(self) -> int:
        """Elements that each rank takes at once."""
        return self._batch_size

    @property
    def remainder(self) -> Remainder:
        """The treatment of records that do not fill a batch of every rank."""
        return self._remainder

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of each rank in an epoch."""
        return self._batches_per_epoch

    def is_real(self, index: int) -> bool:
        """Return whether a global index is data, not padding.

        Args:
            index: At least 0.

        Returns:
            True for data, False for padding.
        """
        if self._remainder is not Remainder.PAD:
            return True
        return index % self._epoch_length < self._records_per_epoch

    def _keys(self, first: int, step: int, count: int) -> Int64Array:
        indices = first + step * np.arange(count, dtype=np.int64)
        epochs, positions = np.divmod(indices, self._epoch_length)
        positions %= self._records_per_epoch
        # Positions in `_record_keys`, which has the records of one epoch after another.
        positions += epochs * self._records_per_epoch
        return self._record_keys.keys(positions)

    def __repr__(self) -> str:
        return (
            f"DistributedSampler(num_records={self._num_records}, "
            f"shard_options={self._shard_options!r}, "
            f"batch_size={self._batch_size}, "
            f"shuffle={self._shuffle}, "
            f"num_epochs={self._num_epochs}, "
            f"seed={self._seed}, "
            f"remainder={self._remainder.value!r})"
        )


class WithMask(MapWithIndex):
    """Add to elements whether they are data or padding (of "pad").

    An operation of the `DataLoader` of a `DistributedSampler`, before its batches.

    Args:
        sampler: The sampler of the loader.
        key: The field for the bool in elements, which must be dicts. None turns
            elements of any type into pairs ``(element, bool)``.

    Raises:
        TypeError: An argument has the wrong type; or, while iterating, there is a key
            and an element is not a dict.
        ValueError: While iterating: an element already has the key.

    Example:
        >>> sampler = DistributedSampler(3, batch_size=2, num_epochs=1, remainder="pad")
        >>> loader = gristmill.DataLoader(
        ...     data_source=[5, 6, 7],
        ...     sampler=sampler,
        ...     operations=[WithMask(sampler), gristmill.Batch(2)],
        ... )
        >>> [(batch.tolist(), mask.tolist()) for batch, mask in loader]
        [([5, 6], [True, True]), ([7, 5], [True, False])]
    """

    def __init__(self, sampler: DistributedSampler, key: str | None = None) -> None:
        check_instance("sampler", sampler, DistributedSampler, "a DistributedSampler")
        check_mask_key(key)
        self._sampler = sampler
        self._key = key

    def map_with_index(self, index: int, element: Any, /) -> Any:
        """Return the element with its mask.

        Args:
            index: The global index of the element.
            element: The element, a dict if the mask has a key.

        Returns:
            A dict with the mask, or a pair ``(element, bool)``.
        """
        return with_mask(element, self._sampler.is_real(index), self._key)

    def __repr__(self) -> str:
        return f"WithMask(sampler={self._sampler!r}, key={self._key!r})"
