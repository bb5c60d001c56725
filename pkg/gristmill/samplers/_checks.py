"""Checks of the samplers' arguments, most of them in Grain's words."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from gristmill._base.checks import check_flag, check_integer
from gristmill._base.types import Int64Array
from gristmill.sharding import ShardOptions

__all__ = [
    "check_block",
    "check_seed",
    "check_shard_options",
    "checked_groups",
    "checked_num_epochs",
    "checked_num_records",
    "out_of_bounds",
]


def checked_groups(groups: Any) -> Int64Array:
    """The records in each group, int64 of shape (G,)."""
    sizes = np.asarray(groups)
    if sizes.ndim != 1 or (sizes.size and sizes.dtype.kind not in "iu"):
        raise TypeError(
            "groups must be a sequence of integers, the records in each group, got"
            f" {type(groups).__name__}. Pass source.groups."
        )
    if sizes.size and sizes.min() < 0:
        raise ValueError(
            f"groups must be numbers of records, but group {int(sizes.argmin())} has"
            f" {int(sizes.min())}."
        )
    return sizes.astype(np.int64)


def checked_num_epochs(num_epochs: int | None) -> int | None:
    """The number as Python's own int; None is for ever."""
    if num_epochs is None:
        return None
    check_integer("num_epochs", num_epochs)
    num_epochs = operator.index(num_epochs)
    if num_epochs <= 0:
        raise ValueError(
            "Invalid number of epochs in Index Sampler."
            f"Got {num_epochs} epochs, but number of epochs "
            "must be greater than 0."
        )
    return num_epochs


def check_shard_options(shard_options: Any) -> None:
    """Refuse what is not a ShardOptions."""
    if not isinstance(shard_options, ShardOptions):
        raise TypeError(
            f"shard_options must be a ShardOptions, got {type(shard_options).__name__}."
            " Pass NoSharding() or ShardOptions(shard_index, shard_count)."
        )


def checked_num_records(num_records: int) -> int:
    """The number as Python's own int: NumPy's would overflow further on."""
    sized = hasattr(num_records, "__len__")
    check_integer("num_records", num_records, " Pass len(source)." if sized else "")
    num_records = operator.index(num_records)
    if num_records >= 2**63:
        raise OverflowError(f"num_records must be less than 2**63, got {num_records}.")
    if num_records <= 0:
        raise ValueError(
            "Invalid number of records in Sampler. "
            f"Got {num_records} records, but number of records "
            "must be greater than 0."
        )
    return num_records


def check_seed(seed: Any, shuffle: bool) -> None:
    """Refuse what is no seed; None is one where nothing is shuffled."""
    check_flag("shuffle", shuffle)
    if seed is None:
        if shuffle:
            raise ValueError("Shuffling requires specifying a seed.")
        return
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(f"Expected seed of int type. Got seed with type {type(seed)}")
    if seed < 0 or seed.bit_length() > 32:
        raise ValueError("Seed should be positive 32-bit integer.")


def check_block(first: int, step: int, count: int, max_index: int | None) -> None:
    """Refuse indices that are not a block within [0, max_index)."""
    if step <= 0 or count < 0:
        raise ValueError(
            "record_keys needs a positive step and a count of at least 0, got"
            f" step={step} and count={count}."
        )
    if first < 0:
        raise out_of_bounds(first, max_index)
    last = first + step * (count - 1)
    if count and max_index is not None and last >= max_index:
        raise out_of_bounds(last, max_index)


def out_of_bounds(index: int, max_index: int | None) -> IndexError:
    """What to raise for an index outside of [0, max_index)."""
    return IndexError(
        f"RecordMetadata object index is out of bounds; Got index {index},"
        f" allowed indices should be in [0, {max_index}]"
    )
