"""Batches samples of similar lengths; each rank gets the same number of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from gristmill._base.argument_checks import check_flag, check_integer
from gristmill._base.length_buckets import Buckets, make_buckets
from gristmill._base.object_repr import call_text
from gristmill._base.types import Int64Array
from gristmill._torch.bases import TorchSampler
from gristmill.sharding import AnyRemainder, Remainder, torch_process


class BucketBatchSampler(TorchSampler[list[int]]):  # type: ignore[misc]
    """Batches samples of similar lengths; a ``batch_sampler`` for torch's loaders.

    The order of an epoch is cut into batches within each bucket.  In each step, every
    rank gets one batch.  The batches of a step are from the same bucket if it has
    enough, so that no rank waits for another's long samples.  All ranks get the same
    number of batches, in every epoch.  Batches depend only on the arguments and the
    epoch: call `set_epoch` before each epoch, also before resuming a saved one.

    Args:
        lengths: The length of each sample: ints of at least 0, shape (n,).
        bucket_boundaries: Ascending lengths, at least 1.  A sample whose length equals
            a boundary is in the bucket after it.
        bucket_batch_sizes: Samples per batch of each bucket.  There is one more bucket
            than boundaries.
        max_tokens: An alternative to `bucket_batch_sizes`: the maximum of a batch's
            samples times the longest length of its bucket.  The last boundary must be
            greater than all lengths.
        num_replicas: The number of ranks; by default that of torch.distributed or
            torchrun, else 1.
        rank: The rank of this process; by default that of torch.distributed or
            torchrun, else 0.
        shuffle: Whether each epoch has its own random order.  If False, and with one
            rank, batches are those of `IterDataset.bucket_by_sequence_length`.
        seed: The seed of the order, which must be the same for all ranks.
        drop_last: Whether to leave out batches that are not full, at most one per
            bucket.
        remainder: How to treat batches that do not fill a step of all ranks: a
            `sharding.Remainder` or its value.  "wrap" and "pad" repeat batches of the
            same step; a `WithMask` dataset marks those repeated by "pad".

    Raises:
        ValueError: An argument is out of range, a sample is longer than the last
            bucket allows, or no step is left.
        TypeError: An argument has the wrong type.

    Example:
        >>> sampler = BucketBatchSampler(
        ...     [3, 9, 1, 8, 2], [5, 10], max_tokens=9, shuffle=False
        ... )
        >>> list(sampler)
        [[1], [0, 2], [3], [4]]
    """

    def __init__(  # noqa: PLR0913 (those of torch's samplers, and of buckets)
        self,
        lengths: Any,
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int] | None = None,
        *,
        max_tokens: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        remainder: AnyRemainder = Remainder.WRAP,
    ) -> None:
        check_flag("shuffle", shuffle)
        check_flag("drop_last", drop_last)
        check_integer("seed", seed)
        buckets = make_buckets(bucket_boundaries, bucket_batch_sizes, max_tokens)
        self._boundaries = buckets.boundaries
        self._sizes, self._bucket_of = _assign_buckets(lengths, buckets)
        self.rank, self.num_replicas = _check_rank(rank, num_replicas)
        self.shuffle = shuffle
        self.seed = int(seed)
        self.drop_last = drop_last
        self.remainder = Remainder(remainder)
        self.epoch = 0
        counts = np.bincount(self._bucket_of, minlength=len(self._sizes))
        full_batches, extra_samples = np.divmod(counts, self._sizes)
        batches = int(full_batches.sum())
        if not drop_last:
            batches += int(np.count_nonzero(extra_samples))
        self._length = self.remainder.batches_per_rank(batches, self.num_replicas)
        if batches and not self._length:
            raise ValueError(
                "remainder='drop' needs at least one batch for each rank, got"
                f" {batches} batches for {self.num_replicas} ranks. Pass"
                " remainder='wrap' or 'pad', or make smaller batches."
            )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next ``iter()``; the first one is 0.

        Args:
            epoch: From 0 to 2**63 - 1.

        Raises:
            TypeError: `epoch` is not an integer.
            ValueError: `epoch` is out of range.
        """
        check_integer("epoch", epoch)
        if not 0 <= epoch < 2**63:
            raise ValueError(f"epoch must be from 0 to 2**63 - 1, got {epoch}.")
        self.epoch = int(epoch)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        count = len(self._bucket_of)
        for step in self._steps():
            # If the step has too few batches, the remaining ranks repeat some.
            indices = step[self.rank % len(step)]
            if self.rank >= len(step) and self.remainder is Remainder.PAD:
                # `WithMask` returns the samples at these indices as padding.
                indices = indices + count
            batch: list[int] = indices.tolist()
            yield batch

    def __repr__(self) -> str:
        return call_text(
            self,
            self._bucket_of,
            list(self._boundaries),
            self._sizes.tolist(),
            num_replicas=self.num_replicas,
            rank=self.rank,
            shuffle=self.shuffle,
            seed=self.seed,
            drop_last=self.drop_last,
            remainder=self.remainder.value,
        )

    def _steps(self) -> list[list[Int64Array]]:
        """Return the batches of each step; the last step may have too few."""
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        ranks = self.num_replicas
        steps: list[list[_Batch]] = []
        # The batches that do not fill a step with others of their bucket.
        leftover: list[_Batch] = []
        order = self._draw_order(len(self._bucket_of), generator)
        for batches in self._batches(order):
            full = [batch for batch in batches if batch.is_full]
            end = len(full) - len(full) % ranks
            steps += (full[at : at + ranks] for at in range(0, end, ranks))
            leftover += full[end:] + batches[len(full) :]
        # In the order in which the batches of a step are full.
        steps.sort(key=lambda step: step[-1].last)
        if self.remainder is Remainder.DROP:
            # Drop random batches: the last ones are always those of long samples.
            count = len(leftover) - len(leftover) % ranks
            remaining = self._draw_order(len(leftover), generator)[:count]
            leftover = [leftover[number] for number in np.sort(remaining).tolist()]
        steps += (leftover[at : at + ranks] for at in range(0, len(leftover), ranks))
        step_order = self._draw_order(len(steps), generator).tolist()
        return [[batch.indices for batch in steps[number]] for number in step_order]

    def _batches(self, order: Int64Array) -> Iterator[list[_Batch]]:
        """Yield the batches of each bucket, in order; the last may not be full."""
        buckets = self._bucket_of[order]
        # Positions in the order, sorted by bucket.
        positions = np.argsort(buckets, kind="stable")
        ends = np.searchsorted(buckets[positions], np.arange(len(self._sizes)), "right")
        first = 0
        for end, size in zip(ends.tolist(), self._sizes.tolist(), strict=True):
            dropped_count = (end - first) % size if self.drop_last else 0
            stop = end - dropped_count
            parts = (
                positions[at : min(at + size, end)] for at in range(first, stop, size)
            )
            yield [
                _Batch(int(part[-1]), len(part) == size, order[part]) for part in parts
            ]
            first = end

    def _draw_order(self, count: int, generator: torch.Generator) -> Int64Array:
        """Return the numbers from 0 to ``count - 1`` in random order, if shuffled."""
        if not self.shuffle:
            return np.arange(count)
        order: Int64Array = torch.randperm(count, generator=generator).numpy(force=True)
        return order


class _Batch(NamedTuple):
    """A batch of one bucket."""

    last: int  # The position of its last sample in the epoch's order.
    is_full: bool
    indices: Int64Array


def _assign_buckets(lengths: Any, buckets: Buckets) -> tuple[Int64Array, Int64Array]:
    """Return the batch size of each bucket, and the bucket of each sample."""
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            "lengths must be ints of shape (n,), one for each sample, got"
            f" {type(lengths).__name__} of shape {array.shape} and dtype {array.dtype}."
        )
    for length in (array.min(), array.max()) if array.size else ():
        buckets.of(int(length))  # Raises ValueError if no bucket has this length.
    boundaries = np.array(buckets.boundaries, np.int64)
    bucket_of = np.searchsorted(boundaries, array, side="right")
    return np.array(buckets.sizes, np.int64), bucket_of.astype(np.int64)


def _check_rank(rank: int | None, ranks: int | None) -> tuple[int, int]:
    if rank is None or ranks is None:
        default_rank, default_ranks = torch_process()
        rank = default_rank if rank is None else rank
        ranks = default_ranks if ranks is None else ranks
    check_integer("rank", rank)
    check_integer("num_replicas", ranks)
    if not 0 <= rank < ranks:
        raise ValueError(
            f"rank must be in [0, num_replicas), got rank={rank} and"
            f" num_replicas={ranks}."
        )
    return int(rank), int(ranks)
