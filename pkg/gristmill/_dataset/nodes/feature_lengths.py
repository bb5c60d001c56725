"""The lengths of the features of documents, for packing them by one plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill._base.argument_checks import kind
from gristmill._base.types import Int64Array
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.nodes.document_spans import Lengths, as_lengths, lengths_of


class FeatureLengths(NamedTuple):
    """The number of cells of each document in each feature.

    Attributes:
        tokens: Those of the first feature, int32 or int64 of shape ``(n,)``.
        extras: Those of each feature with lengths of its own, except the first one.
        are_given: Whether the user passed the lengths of the first feature.
    """

    tokens: Lengths
    extras: dict[Any, Lengths]
    are_given: bool

    def extras_of(self, documents: Int64Array) -> Int64Array | None:
        """Return the cells of documents in extra features, one row for each feature.

        Returns None if there are no extra features.
        """
        if not self.extras:
            return None
        cells = np.empty((len(self.extras), len(documents)), np.int64)
        for row, lengths in zip(cells, self.extras.values(), strict=True):
            row[:] = lengths[documents]
        return cells

    def extras_with(
        self, capacities: Mapping[Any, int]
    ) -> list[tuple[str, Lengths, int]]:
        """Return the name, the lengths and the capacity of each extra feature."""
        return [
            (str(name), lengths, capacities[name])
            for name, lengths in self.extras.items()
        ]


def given_lengths(
    length_struct: Any, lengths: npt.ArrayLike | Mapping[Any, npt.ArrayLike] | None
) -> dict[Any, npt.ArrayLike | None]:
    """Return the user's lengths by feature, the first feature's first.

    Raises:
        TypeError: There are lengths by feature, but documents are arrays.
        ValueError: There are lengths of a feature that is not packed.
    """
    if not isinstance(length_struct, Mapping) or not length_struct:
        if isinstance(lengths, Mapping):
            raise TypeError(
                "lengths must be an array of ints, because length_struct has no names"
                f" of features, got {kind(lengths)}. Pass length_struct as a dict, too."
            )
        return {None: lengths}
    main = next(iter(length_struct))
    if not isinstance(lengths, Mapping):
        return {main: lengths}
    for name in lengths:
        if name not in length_struct:
            raise ValueError(
                "lengths must have only features of length_struct,"
                f" {list(length_struct)!r}, got {name!r}."
            )
    return {main: None} | dict(lengths)


def find_lengths(
    dataset: MapDataset[Any], given: Mapping[Any, npt.ArrayLike | None]
) -> FeatureLengths:
    """Return the lengths of all features, given the result of `given_lengths`.

    Raises:
        TypeError: The lengths are not ints, or those of the first feature are not
            known.
        ValueError: See `lengths_of`.
    """
    (_, of_main), *others = given.items()
    tokens = lengths_of(dataset, of_main)
    extras = {
        name: as_lengths(of_feature, len(dataset), f"lengths[{name!r}]")
        for name, of_feature in others
    }
    return FeatureLengths(tokens, extras, of_main is not None)
