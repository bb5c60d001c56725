"""A transform that batches elements of similar lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from gristmill._base.argument_checks import check_callable, check_flag
from gristmill._base.length_buckets import Buckets, make_buckets
from gristmill.transforms._kinds import AnyTransform


@dataclasses.dataclass(frozen=True)
class BucketBatch(AnyTransform):
    """Combine elements of similar lengths into batches, as tf.data does.

    An element waits in the bucket of its length.  A full bucket is the next batch,
    padded to the longest element in it.  Buckets that are not full come at the end,
    shortest lengths first.

    In a `DataLoader` it must be the first operation that batches.  Flat maps, functions
    over `Record` objects, and random or index steps must not follow it.

    Args:
        element_length_func: Returns the length of an element, an int of at least 0.
        bucket_boundaries: Ascending ints. Each bucket has the lengths from one boundary
            up to, but not including, the next.
        bucket_batch_sizes: The batch size of each bucket.  There is one more than there
            are boundaries: the last bucket has all lengths from the last boundary on.
            None if `max_tokens` is given.
        max_tokens: The maximum number of elements in a batch times the longest length
            of its bucket.  Replaces `bucket_batch_sizes`.  All lengths must then be
            less than the last boundary.
        padding_values: Values of padding, one for each leaf or one for all; None for 0.
        pad_to_bucket_boundary: Whether to pad to the longest length of the bucket, so
            that all batches of a bucket have one length.  All lengths must then be less
            than the last boundary.
        drop_remainder: Whether to drop batches that are not full.
        batch_fn: Makes a batch from a list of elements; None pads and stacks leaves.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or conflicts with another.

    Example:
        >>> loader = gristmill.DataLoader(
        ...     data_source=[np.ones(n) for n in (1, 5, 2, 6)],
        ...     sampler=gristmill.SequentialSampler(4),
        ...     operations=[gristmill.transforms.BucketBatch(len, [3], [2, 2])],
        ... )
        >>> [batch.shape for batch in loader]
        [(2, 2), (2, 6)]
    """

    element_length_func: Callable[[Any], int]
    bucket_boundaries: Sequence[int]
    bucket_batch_sizes: Sequence[int] | None = None
    _: dataclasses.KW_ONLY
    max_tokens: int | None = None
    padding_values: Any = None
    pad_to_bucket_boundary: bool = False
    drop_remainder: bool = False
    batch_fn: Callable[[list[Any]], Any] | None = None

    def __post_init__(self) -> None:
        check_callable("element_length_func", self.element_length_func)
        check_flag("pad_to_bucket_boundary", self.pad_to_bucket_boundary)
        check_flag("drop_remainder", self.drop_remainder)
        if self.batch_fn is not None:
            check_callable("batch_fn", self.batch_fn, " Leave it out to pad leaves.")
            if self.pad_to_bucket_boundary or self.padding_values is not None:
                raise ValueError(
                    "batch_fn cannot be combined with padding_values or"
                    " pad_to_bucket_boundary. Leave out batch_fn, or both of these."
                )
        self.buckets()

    def buckets(self) -> Buckets:
        """Return the ranges of lengths, and the sizes of their batches."""
        buckets = make_buckets(
            self.bucket_boundaries, self.bucket_batch_sizes, self.max_tokens
        )
        if not self.pad_to_bucket_boundary:
            return buckets
        # The last bucket must have an upper boundary to pad to.
        return dataclasses.replace(
            buckets, sizes=buckets.sizes[: len(buckets.boundaries)]
        )
