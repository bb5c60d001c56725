"""Groups elements of similar length into batches."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from gristmill._base.argument_checks import check_integer, kind


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Ranges of lengths, each with the size of its batches.

    Attributes:
        boundaries: Ascending ints, at least 1 each.  Bucket b contains the lengths from
            boundary b - 1 (inclusive) to boundary b (exclusive).
        sizes: The number of elements per batch, at least 1, for each bucket.  If there
            is one more size than boundaries, the last bucket has no upper limit.
    """

    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]

    def of(self, length: Any) -> int:
        """Return the number of the bucket for elements of a given length.

        Raises:
            TypeError: The length is not an int.
            ValueError: The length is negative or exceeds the last bucket.
        """
        check_integer("The length of an element", length)
        if length < 0:
            raise ValueError(
                f"The length of an element must be at least 0, got {length}."
            )
        if length > self.max_length:
            raise ValueError(
                "The length of an element must be less than the last of"
                f" bucket_boundaries, {self.boundaries[-1]}, got {length}. Shorten the"
                " element, or add a boundary."
            )
        return bisect.bisect_right(self.boundaries, operator.index(length))

    @property
    def max_length(self) -> float:
        """The greatest length that has a bucket; infinity if all lengths have one."""
        bounded = len(self.sizes) == len(self.boundaries)
        return self.boundaries[-1] - 1 if bounded else float("inf")


def make_buckets(boundaries: Any, batch_sizes: Any, max_tokens: int | None) -> Buckets:
    """Return the buckets that a user's arguments describe.

    Args:
        boundaries: A sequence of ascending ints.
        batch_sizes: A sequence with one more int than `boundaries`; None if
            `max_tokens` is given.
        max_tokens: The largest allowed product of a batch's size and the longest length
            of its bucket; None if `batch_sizes` is given.

    Raises:
        ValueError: A number is out of range, or not exactly one of `batch_sizes` and
            `max_tokens` is given.
        TypeError: A number is not an int, or an argument is not a sequence.
    """
    edges = _integers("bucket_boundaries", boundaries)
    if any(low >= high for low, high in itertools.pairwise(edges)):
        raise ValueError(f"bucket_boundaries must ascend, got {[*edges]}.")
    if (batch_sizes is None) == (max_tokens is None):
        raise ValueError(
            "Buckets need either bucket_batch_sizes or max_tokens, got"
            f" {'neither' if batch_sizes is None else 'both'}."
        )
    if max_tokens is not None:
        return Buckets(edges, _sizes_of_budget(edges, max_tokens))
    sizes = _integers("bucket_batch_sizes", batch_sizes)
    if len(sizes) != len(edges) + 1:
        raise ValueError(
            "bucket_batch_sizes must have one item more than bucket_boundaries, for"
            f" longer elements, got {len(sizes)} sizes and {len(edges)} boundaries."
        )
    return Buckets(edges, sizes)


def _sizes_of_budget(boundaries: Sequence[int], max_tokens: int) -> tuple[int, ...]:
    check_integer("max_tokens", max_tokens)
    if not boundaries:
        raise ValueError(
            "max_tokens needs bucket_boundaries, whose last item limits the lengths,"
            " got none."
        )
    max_length = boundaries[-1] - 1
    if max_tokens < max(max_length, 1):
        raise ValueError(
            f"max_tokens must be at least {max(max_length, 1)}, the longest length of"
            f" the last bucket, got {max_tokens}. Pass a larger number, or lower"
            " boundaries."
        )
    return tuple(operator.index(max_tokens) // max(b - 1, 1) for b in boundaries)


def _integers(name: str, values: Any) -> tuple[int, ...]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(f"{name} must be a sequence of ints, got {kind(values)}.")
    for value in values:
        check_integer(f"Each of {name}", value)
        if value < 1:
            raise ValueError(f"Each of {name} must be at least 1, got {value}.")
    return tuple(map(operator.index, values))
