"""Torch's DistributedSampler, with the same number of full batches for each rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from gristmill._base.object_repr import call_text
from gristmill._base.types import Int64Array
from gristmill._torch.bases import TorchDistributedSampler
from gristmill._torch.indices.masked import check_masked
from gristmill.sharding import AnyRemainder, Remainder


class DistributedSampler(TorchDistributedSampler[Any]):  # type: ignore[misc]
    """Divides a dataset so that all ranks get the same number of full batches.

    It is a subclass of torch's sampler, with the same order and random draws.  Without
    the last two arguments, the indices are the same, too.

    Call `set_epoch` before each epoch, also before resuming a saved one: a loader's
    state does not include the epoch.

    Args:
        dataset: A dataset with a length; for ``remainder="pad"`` a `WithMask`.
        num_replicas: The number of ranks, by default that of torch.distributed.
        rank: The rank of this process, by default that of torch.distributed.
        shuffle: Whether each epoch has its own random order.
        seed: The seed of the order, which must be the same for all ranks.
        drop_last: Whether to leave out samples that do not fill a batch of every rank,
            like ``remainder="drop"``.
        batch_size: The batch size of the loader, at least 1.  With 1 all ranks get the
            same number of samples.
        remainder: How to treat samples that do not fill a batch of every rank: a
            `sharding.Remainder` or its value.  By default "drop" with `drop_last`, and
            "wrap" without.

    Raises:
        ValueError: An argument is out of range, or `drop_last` contradicts `remainder`.
        TypeError: An argument has the wrong type.

    Example:
        >>> ranks = [
        ...     DistributedSampler(range(5), 2, rank, shuffle=False, batch_size=2)
        ...     for rank in range(2)
        ... ]
        >>> [list(sampler) for sampler in ranks]
        [[0, 2, 4, 1], [1, 3, 0, 2]]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        batch_size: int = 1,
        remainder: AnyRemainder | None = None,
    ) -> None:
        checked_remainder = _check_remainder(drop_last, remainder)
        drop_last = checked_remainder is Remainder.DROP
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        if checked_remainder is Remainder.PAD:
            check_masked(dataset)
        self.remainder = checked_remainder
        self.batch_size = batch_size
        self.num_samples = checked_remainder.elements_per_rank(
            len(dataset), self.num_replicas, batch_size
        )
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        indices: list[int] = self.indices().tolist()
        return iter(indices)

    def __repr__(self) -> str:
        return call_text(
            self,
            self.dataset,
            num_replicas=self.num_replicas,
            rank=self.rank,
            shuffle=self.shuffle,
            seed=self.seed,
            batch_size=self.batch_size,
            remainder=self.remainder.value,
        )

    def indices(self) -> Int64Array:
        """Return this rank's indices of the epoch, int64 of shape (len(self),)."""
        length = len(self.dataset)
        # This rank's positions in the order of the epoch.  The samples repeat at its
        # end.
        positions = np.arange(self.rank, self.total_size, self.num_replicas)
        indices = positions % max(length, 1)
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = torch.randperm(length, generator=generator).numpy(force=True)
            indices = order[indices]
        if self.remainder is Remainder.PAD:
            indices = indices + np.where(positions < length, 0, length)
        return indices


def _check_remainder(drop_last: bool, remainder: AnyRemainder | None) -> Remainder:
    """Return the remainder that two arguments of `DistributedSampler` select."""
    if remainder is None:
        return Remainder.DROP if drop_last else Remainder.WRAP
    member = Remainder(remainder)
    if drop_last and member is not Remainder.DROP:
        raise ValueError(
            f"drop_last=True contradicts remainder={member.value!r}, which keeps the"
            " last samples. Pass only one of them."
        )
    return member
