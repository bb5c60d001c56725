"""What packed rows are made of: plain data for the compiled loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class PackLayout:
    """How elements are packed into rows.

    A feature is a leaf of an element that is packed; all tuples below have one item
    for each.

    Attributes:
        rows: Rows per batch.
        best_fit: Whether an element goes to the fullest row with room, not the first.
        max_sequences: The most elements that a row holds; 0 for no limit.
        names: Where a feature is in an element, for errors: ``['tokens']``.
        paths: The same in Grain's words.
        lengths: Cells per row.
        alignments: Elements begin at multiples of this many cells.
        paddings: What cells hold where nothing is packed; None for zero.
        numbered: Whether the feature gets segment ids and positions.
        keys: The features' keys where elements are flat mappings, else None.
        leaves_of: Takes an element apart into features where `keys` is None.
        meta_keys: Keys whose values are collected in a list for each row.
        columns: The leaves of a packed row, as numbers: of values, segment ids,
            positions, each by feature, and of the lists of `meta_keys`, in a row.
        column_keys: The keys of `columns` where a packed row is a plain dict.
        assemble: Makes a packed row of its leaves where `column_keys` is None.
        too_long: How the error about an element that is too long begins.
    """

    rows: int
    best_fit: bool
    max_sequences: int
    names: tuple[str, ...]
    paths: tuple[str, ...]
    lengths: tuple[int, ...]
    alignments: tuple[int, ...]
    paddings: tuple[Any, ...]
    numbered: tuple[bool, ...]
    keys: tuple[Any, ...] | None
    leaves_of: Callable[[Any], list[Any]] | None
    meta_keys: tuple[Any, ...]
    columns: tuple[int, ...]
    column_keys: tuple[Any, ...] | None
    assemble: Callable[[list[Any]], Any] | None
    too_long: str

    def too_long_error(self, lengths: Sequence[int]) -> ValueError:
        """Return the error about features longer than a row, in Grain's words."""
        details = ", ".join(
            f"({path}, {length}, {capacity})"
            for path, length, capacity in zip(
                self.paths, lengths, self.lengths, strict=True
            )
            if length > capacity
        )
        return ValueError(
            f"{self.too_long} Exceeds: (feature_path, feature_length, max_length) ="
            f" [{details}]. Cut longer elements in a map before packing, or raise"
            " length_struct."
        )


@dataclasses.dataclass(frozen=True)
class SplitLayout:
    """How elements are laid end to end and cut into rows.

    Elements are mappings with exactly these keys; all tuples but the last two have one
    item for each.

    Attributes:
        keys: The features.
        lengths: Cells per row, at least 1.
        whole: Whether the feature is never cut, and has no segment ids and positions.
        bos: Whether each segment's first cell becomes `bos_token`.
        bos_token: The token that begins a sequence.
        split_full_rows: Whether an element that fills a row by itself is treated as
            others; else it becomes a row of its own.
        columns: The values of a row, as numbers: of values, segment ids and positions,
            each by feature, in a row.
        column_keys: Their keys.
    """

    keys: tuple[Any, ...]
    lengths: tuple[int, ...]
    whole: tuple[bool, ...]
    bos: tuple[bool, ...]
    bos_token: Any
    split_full_rows: bool
    columns: tuple[int, ...]
    column_keys: tuple[Any, ...]

    def structure_error(self, element: Any) -> ValueError:
        """Return the error about an element with other keys, in Grain's words."""
        found = {key: _spec_of(value) for key, value in element.items()}
        lengths = dict(zip(self.keys, self.lengths, strict=True))
        return ValueError(
            f"Parent element has structure {found} but target sequence length is"
            f" {lengths}. There must be a sequence length for each feature. Drop"
            " features that are not to be packed in a map before packing."
        )

    def whole_error(self, feature: int, size: int) -> ValueError:
        """Return the error about a feature that is never cut and fits in no row."""
        return ValueError(
            f"Meta feature {self.keys[feature]!r} of an element has length {size}, but"
            f" a row has only {self.lengths[feature]} cells for it, and meta features"
            " are never cut. Raise its length in length_struct, or cut it in a map"
            " before packing."
        )


def _spec_of(value: Any) -> str:
    """Return what a feature is, in Grain's words."""
    kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
    return f"{kind}{list(np.shape(value))}"
