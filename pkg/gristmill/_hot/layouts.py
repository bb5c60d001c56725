"""What packed rows are made of: plain data for the compiled loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class PackLayout:
    """How elements are packed into rows.

    A feature is a leaf of an element that is packed; tuples have one item for each.
    """

    rows: int  # Per batch.
    best_fit: bool  # An element goes to the fullest row with room, not to the first.
    max_sequences: int  # The most elements that a row holds; 0 for no limit.
    names: tuple[str, ...]  # Where a feature is in an element: ``['tokens']``.
    paths: tuple[str, ...]  # The same in Grain's words.
    lengths: tuple[int, ...]  # Cells per row.
    alignments: tuple[int, ...]  # Elements begin at multiples of this many cells.
    paddings: tuple[Any, ...]  # What cells hold where nothing is packed; None for zero.
    numbered: tuple[bool, ...]  # Whether the feature gets segment ids and positions.
    # The features' keys where elements are flat mappings, else what takes one apart.
    keys: tuple[Any, ...] | None
    leaves_of: Callable[[Any], list[Any]] | None
    meta_keys: tuple[
        Any, ...
    ]  # Keys whose values are collected in a list for each row.
    # The leaves of a packed row, as numbers: of values, segment ids, positions, each by
    # feature, and of the lists of `meta_keys`, in a row.
    columns: tuple[int, ...]
    # The keys of `columns` where a packed row is a plain dict, else what makes one.
    column_keys: tuple[Any, ...] | None
    assemble: Callable[[list[Any]], Any] | None
    too_long: str  # How the error about an element that is too long begins.

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

    Elements are mappings with exactly the keys of the features; tuples, but for those
    of columns, have one item for each.
    """

    keys: tuple[Any, ...]
    lengths: tuple[int, ...]  # Cells per row, at least 1.
    whole: tuple[bool, ...]  # Never cut, and without segment ids and positions.
    bos: tuple[bool, ...]  # Whether each segment's first cell becomes `bos_token`.
    bos_token: Any
    # Whether an element that fills a row by itself is treated as others; else it
    # becomes a row of its own.
    split_full_rows: bool
    # The values of a row, as numbers: of values, segment ids and positions, each by
    # feature, in a row.
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
