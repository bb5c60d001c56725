"""Divides a dataset among ranks, with the same number of elements for each."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import numpy as np

from gristmill._base.argument_checks import check_instance
from gristmill._base.padding_masks import check_mask_key, with_mask
from gristmill._base.types import Indices, T
from gristmill._dataset.model.blocks import (
    epochs_and_offsets,
)
from gristmill._dataset.model.error_notes import note_element
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import builds
from gristmill._dataset.model.spec import ShapeDtypeStruct
from gristmill._dataset.nodes.order import OrderMapDataset
from gristmill.sharding import AnyRemainder, Remainder, ShardOptions


@builds("MapDataset.shard")
def shard(
    parent: MapDataset[Any],
    options: ShardOptions,
    remainder: AnyRemainder,
    batch_size: int,
    mask_key: str | None,
) -> MapDataset[Any]:
    """Return the elements of one rank, see `MapDataset.shard`."""
    expected = "a ShardOptions: ShardOptions(shard_index, shard_count)"
    check_instance("shard_options", options, ShardOptions, expected)
    check_mask_key(mask_key)
    if len(parent) >= sys.maxsize:
        raise ValueError(
            f"shard needs a finite dataset, got {parent}, which is infinite. Call shard"
            " before repeat."
        )
    policy = Remainder(remainder)
    if mask_key is not None and policy is not Remainder.PAD:
        raise ValueError(
            f"mask_key needs remainder='pad', got remainder={policy.value!r}. Leave"
            " mask_key out."
        )
    rank, ranks = int(options.shard_index), int(options.shard_count)
    length = policy.elements_per_rank(len(parent), ranks, batch_size)
    if policy is Remainder.PAD:
        return PadMapDataset(parent, rank, ranks, length, mask_key)
    if length * ranks <= len(parent):
        return parent.slice(slice(rank, length * ranks, ranks))
    return WrapMapDataset(parent, rank, ranks, length)


class WrapMapDataset(OrderMapDataset[T]):
    """Every `ranks`-th element of an epoch from `rank` on, wrapping at its end."""

    _SLICEABLE = True
    _REPR_ARGS: ClassVar[tuple[str, ...]] = ("rank", "ranks", "length")

    def __init__(
        self, parent: MapDataset[T], rank: int, ranks: int, length: int
    ) -> None:
        super().__init__(parent)
        self._rank = rank
        self._ranks = ranks
        self._length = length

    def _epochs_and_places(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the epoch of each index, and its place in the parent's epoch.

        Places from the parent's length on wrap around, or are padding.
        """
        epochs, offsets = epochs_and_offsets(indices, self._length)
        return epochs, offsets * self._ranks + self._rank

    def _to_ancestor_indices(self, indices: Indices) -> Indices:
        epochs, places = self._epochs_and_places(indices)
        length = len(self._parent)
        # Use Python's integers if the sum below might not fit into 64 bits.
        if abs(epochs).max(initial=0) > 2**62 // length:
            epochs = epochs.astype(np.object_)
        parent_indices: Indices = epochs * length + places % length
        return parent_indices


class PadMapDataset(WrapMapDataset[Any]):
    """The same elements with masks, False for padding after the parent's epoch."""

    _IS_SELECTION = _APPENDS_TO_OUT = False
    _REPR_ARGS = ("rank", "ranks", "length", "mask_key")

    def __init__(
        self,
        parent: MapDataset[Any],
        rank: int,
        ranks: int,
        length: int,
        mask_key: str | None,
    ) -> None:
        super().__init__(parent, rank, ranks, length)
        self._mask_key = mask_key

    @property
    def _element_spec(self) -> Any:
        mask: Any = ShapeDtypeStruct((), np.dtype(np.bool_))
        return with_mask(self._parent._element_spec, mask, self._mask_key)

    def _block(self, indices: Indices, out: list[Any] | None = None) -> list[Any]:
        elements = super()._block(indices)
        _, places = self._epochs_and_places(indices)
        masks = (places < len(self._parent)).tolist()
        for i, (element, mask) in enumerate(zip(elements, masks, strict=True)):
            if element is None:
                continue
            try:
                elements[i] = with_mask(element, mask, self._mask_key)
            except Exception as error:
                note_element(error, self, self, int(indices[i]))
                raise
        return elements
