"""Types of the arguments of batching methods that are passed by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict


class Stacking(TypedDict, total=False):
    """Arguments of `batch` without a function: leaves are stacked."""

    drop_remainder: bool
    batch_fn: None


class Padding(TypedDict, total=False):
    """Arguments of `shard` for elements that may be padding."""

    batch_size: int
    mask_key: str | None


class Bucketing(TypedDict, total=False):
    """Arguments of `bucket_by_sequence_length` that are given by name."""

    max_tokens: int | None
    padding_values: Any
    pad_to_bucket_boundary: bool
    drop_remainder: bool
    batch_fn: Callable[[list[Any]], Any] | None
