"""Packed rows with the ids of their documents."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from gristmill._base.types import Indices
from gristmill._dataset.model.blocks import BlockMapDataset, block_of
from gristmill._dataset.nodes.plan_packing import PackMapDataset
from gristmill._dataset.parallel.traced_element import (
    IDS_DTYPE,
    TracedElement,
    with_span,
)

_NO_IDS = np.empty(0, IDS_DTYPE)


class TracedPackDataset(BlockMapDataset[Any]):
    """The rows of a packed dataset, each with the ids and spans of its documents.

    Args:
        dataset: The packed dataset.
        documents: Its parent, whose elements are traced.
    """

    _SLICEABLE = True

    def __init__(self, dataset: PackMapDataset, documents: Any) -> None:
        super().__init__(documents)
        self._rows = dataset

    def __len__(self) -> int:
        return len(self._rows)

    def _block(self, indices: Indices) -> list[TracedElement]:
        spans, numbers = self._rows.locate(indices)
        distinct, places = np.unique(numbers, return_inverse=True)
        documents = block_of(self._parent, distinct)
        ids = [
            with_span(documents[place].ids, begin, end)
            for place, begin, end in zip(
                places.tolist(), spans.begins.tolist(), spans.ends.tolist(), strict=True
            )
        ]
        rows = block_of(self._rows, indices)
        bounds = itertools.pairwise(spans.offsets.tolist())
        return [
            TracedElement(row, [np.concatenate([_NO_IDS, *ids[first:last]])])
            for row, (first, last) in zip(rows, bounds, strict=True)
        ]
