"""The arithmetic of Megatron's GPTDataset: which documents, epochs and rows it has."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence

import numpy as np

SUBSETS = ("train", "valid", "test")
# The last epoch is shuffled separately if fewer of its rows are needed.
SEPARATE_EPOCH_SHARE = 0.80


def normalize(weights: Sequence[float]) -> list[float]:
    """Divide weights by their sum, in the same floating-point steps as Megatron."""
    array = np.array(weights, np.float64)
    shares: list[float] = (array / np.sum(array)).tolist()
    return shares


def subset_range(split: str | None, subset: str, num_documents: int) -> tuple[int, int]:
    """Return the first document of a subset, and the one after its last.

    Args:
        split: The shares of the subsets, such as "99,1,0".  None if all documents
            are in the subset.
        subset: One of SUBSETS.
        num_documents: The number of documents.

    Raises:
        ValueError: `split` is not a list of at most three shares with a positive sum,
            or the share of the subset is 0.
    """
    if split is None:
        return 0, num_documents
    texts = re.findall(r"[.0-9]+", split)
    try:
        shares = [float(text) for text in texts]
    except ValueError:
        shares = []
    is_valid = 0 < sum(shares) < math.inf and "-" not in split
    if not 1 <= len(shares) <= len(SUBSETS) or not is_valid:
        raise ValueError(
            "split must have the shares of train, valid and test, such as '99,1,0', got"
            f" {split!r}."
        )
    shares = normalize([*shares, *[0.0] * (len(SUBSETS) - len(shares))])
    bounds = [0.0, *itertools.accumulate(shares)]
    number = SUBSETS.index(subset)
    begin, end = bounds[number], bounds[number + 1]
    if end <= begin:
        raise ValueError(f"split must have documents for {subset!r}, got {split!r}.")
    return round(begin * float(num_documents)), round(end * float(num_documents))


@dataclasses.dataclass(frozen=True)
class RowCounts:
    """The numbers of epochs and rows, and of those that are shuffled together."""

    epochs: int
    first_epochs: int  # Epochs whose documents are shuffled together.
    rows: int
    first_rows: int  # Rows that are shuffled together.


def count_rows(
    tokens: int,
    sequence_length: int,
    num_samples: int | None,
    extra_token: bool,
    drop_last: bool,
) -> RowCounts:
    """Count the epochs and rows of a GPTDataset.

    Args:
        tokens: The tokens of all documents, at least 1.
        sequence_length: Tokens from one row to the next.
        num_samples: The number of rows that are needed, or None for one epoch.
        extra_token: Whether a row has one more token.
        drop_last: Whether an incomplete last row is dropped.
    """
    extra = int(extra_token)
    epochs = 1
    if num_samples is not None:
        epochs = max(-(-(num_samples * sequence_length + extra) // tokens), 1)
    used = epochs * tokens - extra
    if drop_last:
        rows = used // sequence_length
    else:
        # Megatron's helper computes this in 32-bit floating point.
        rows = math.ceil(np.float32(used) / np.float32(sequence_length))
    if num_samples is None or epochs == 1:
        return RowCounts(epochs, epochs, rows, rows)
    first_rows = ((epochs - 1) * tokens - extra) // sequence_length
    rows_per_epoch = (tokens - extra) // sequence_length
    if num_samples - first_rows < int(SEPARATE_EPOCH_SHARE * rows_per_epoch):
        return RowCounts(epochs, epochs - 1, rows, first_rows)
    return RowCounts(epochs, epochs, rows, rows)
