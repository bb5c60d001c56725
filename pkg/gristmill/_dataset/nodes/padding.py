"""Batches that are always full, because the last one is padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill import batching
from gristmill._hot import tree


def batch_and_pad(values: Sequence[Any], *, batch_size: int, pad_value: Any = 0) -> Any:
    """Stack elements, and fill the batch up to its size.

    Pass it, with the size, as ``batch_fn`` to `batch`, so that the last elements are
    kept and all batches have one shape.

    Args:
        values: The elements, from 1 to `batch_size`.
        batch_size: ``B``, rows of the batch.
        pad_value: What missing rows consist of, as the dtype of each leaf.

    Returns:
        An element with leaves of shape ``(B, *S)`` where the elements have ``S``.

    Raises:
        ValueError: There are no values, or too many.
        ShapeMismatch: Two elements differ in structure or shape.

    Example:
        >>> import functools
        >>> batch_fn = functools.partial(
        ...     gristmill.experimental.batch_and_pad, batch_size=3
        ... )
        >>> ds = gristmill.MapDataset.range(1, 5).batch(3, batch_fn=batch_fn)
        >>> [batch.tolist() for batch in ds]
        [[1, 2, 3], [4, 0, 0]]
    """
    if not values:
        raise ValueError("Cannot batch 0 values.")
    if len(values) > batch_size:
        raise ValueError(f"Cannot batch {len(values)} values to {batch_size}.")
    batch = batching.make_batch(values)
    missing = batch_size - len(values)
    if not missing:
        return batch

    def padded(leaves: list[Any]) -> Any:
        (rows,) = leaves
        padding = np.full((missing, *rows.shape[1:]), pad_value, rows.dtype)
        return np.concatenate([rows, padding])

    return tree.map_batch(padded, [batch], batching.tree_rules())
