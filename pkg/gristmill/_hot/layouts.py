"""Descriptions of packed rows: plain data for the compiled loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class PackLayout:
    """Describes how elements are packed into rows.

    A feature is a packed leaf of an element.  Tuples have one item per feature unless
    noted otherwise.
    """

    rows: int  # Per batch.
    best_fit: bool  # An element goes to the fullest row with room, not to the first.
    max_sequences: int  # The maximum number of elements per row; 0 for no limit.
    names: tuple[str, ...]  # The path of a feature in an element: ``['tokens']``.
    paths: tuple[str, ...]  # The same path in Grain's format.
    lengths: tuple[int, ...]  # Cells per row.
    alignments: tuple[int, ...]  # Elements begin at multiples of this many cells.
    paddings: tuple[Any, ...]  # Values of empty cells; None for zero.
    numbered: tuple[bool, ...]  # True if the feature gets segment ids and positions.
    # If elements are flat mappings, `keys` are the features' keys and `leaves_of` is
    # None.  Otherwise `leaves_of` returns the features of an element.
    keys: tuple[Any, ...] | None
    leaves_of: Callable[[Any], list[Any]] | None
    # Keys whose values are collected in a list for each row.
    meta_keys: tuple[Any, ...]
    # The leaves of a packed row, as indices into the concatenation of: values, segment
    # ids, positions (each by feature) and the lists of `meta_keys`.
    columns: tuple[int, ...]
    # If packed rows are plain dicts, `column_keys` are the keys of `columns`.
    # Otherwise `assemble` makes a row from its leaves.
    column_keys: tuple[Any, ...] | None
    assemble: Callable[[list[Any]], Any] | None
    too_long: str  # The first words of the error about an element that is too long.

    def too_long_error(self, lengths: Sequence[int]) -> ValueError:
        """Return the error about features longer than a row, in Grain's format."""
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
    """Describes how elements are concatenated and cut into rows.

    Elements are mappings with exactly the keys of the features.  Tuples, except those
    of columns, have one item per feature.
    """

    keys: tuple[Any, ...]
    lengths: tuple[int, ...]  # Cells per row, at least 1.
    whole: tuple[bool, ...]  # Never cut, and without segment ids and positions.
    bos: tuple[bool, ...]  # True if each segment's first cell becomes `bos_token`.
    bos_token: Any
    # True if an element that fills a row by itself is treated like the others.
    # Otherwise it becomes a row of its own.
    split_full_rows: bool
    # The values of a row, as indices into the concatenation of: values, segment ids and
    # positions (each by feature).
    columns: tuple[int, ...]
    column_keys: tuple[Any, ...]

    def structure_error(self, element: Any) -> ValueError:
        """Return the error about an element with other keys, in Grain's format."""
        found = {key: _spec_of(value) for key, value in element.items()}
        lengths = dict(zip(self.keys, self.lengths, strict=True))
        return ValueError(
            f"Parent element has structure {found} but target sequence length is"
            f" {lengths}. There must be a sequence length for each feature. Drop the"
            " other features in a map before packing."
        )

    def whole_error(self, feature: int, size: int) -> ValueError:
        """Return the error about an uncuttable feature that is longer than a row."""
        return ValueError(
            f"Meta feature {self.keys[feature]!r} of an element must have a length of"
            f" at most {self.lengths[feature]}, its length in length_struct, got"
            f" {size}. Meta features are never cut. Raise the length in length_struct,"
            " or cut the feature in a map before packing."
        )


def _spec_of(value: Any) -> str:
    """Return the type and shape of a feature, in Grain's format."""
    kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
    return f"{kind}{list(np.shape(value))}"
