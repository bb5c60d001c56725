"""Deals the rows of each global batch to ranks, so that their costs are similar."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from gristmill import _core
from gristmill._base.argument_checks import check_options
from gristmill._base.types import Indices, T
from gristmill._dataset.model.blocks import (
    StepMapDataset,
    as_indices,
    epochs_and_offsets,
)
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import builds
from gristmill._dataset.nodes.elastic_shards import share_of
from gristmill._dataset.nodes.order import OrderMapDataset
from gristmill._dataset.nodes.plan_packing import PackMapDataset
from gristmill.sharding import ShardOptions


@builds("MapDataset.deal")
class DealMapDataset(OrderMapDataset[T]):
    """The rows that one rank gets of each global batch; see `MapDataset.deal`."""

    _SLICEABLE = True
    _REPR_ARGS: ClassVar[tuple[str, ...]] = ("rank", "ranks", "batch_size")

    def __init__(self, parent: MapDataset[T], shard_options: ShardOptions) -> None:
        super().__init__(parent)
        example = "ShardOptions(shard_index=0, shard_count=1)"
        check_options("shard_options", shard_options, ShardOptions, example)
        self._rows = _packed_rows(parent)
        self._global_batch_size = self._rows.global_batch_size or 0
        if not self._global_batch_size:
            raise ValueError(
                "deal needs to know how many rows all ranks together take in a step."
                " Pass it to pack as global_batch_size."
            )
        self._rank, self._ranks, self._batch_size = share_of(
            self._global_batch_size, shard_options
        )
        self._preferred_block = self._batch_size
        self._length = len(parent) // self._global_batch_size * self._batch_size

    def _to_ancestor_indices(self, indices: Indices) -> Indices:
        epochs, offsets = epochs_and_offsets(indices, self._length)
        steps, places = np.divmod(offsets.astype(np.int64), self._batch_size)
        distinct, numbers = np.unique(steps, return_inverse=True)
        firsts = distinct * self._global_batch_size
        dealt = np.stack([self._rows_of_step(first) for first in firsts.tolist()])
        rows: Indices = firsts[numbers] + dealt[numbers, places]
        if not epochs.any():
            return rows
        # Use Python's integers: the sum may not fit into 64 bits.
        moved = rows + epochs.astype(np.object_) * len(self._parent)
        return as_indices(moved.tolist())

    def _rows_of_step(self, first: int) -> Indices:
        """Return this rank's rows of a global batch, counted from its first row."""
        rows = np.arange(first, first + self._global_batch_size)
        dealt: Indices = _core.deal(self._rows.costs(rows), self._ranks)[self._rank]
        return dealt


def _packed_rows(dataset: Any) -> PackMapDataset:
    """Return the packed dataset whose rows are a dataset's elements."""
    node = dataset
    while isinstance(node, StepMapDataset):
        node = node._parent
    if not isinstance(node, PackMapDataset):
        raise TypeError(
            f"deal must follow pack, with only maps between them, got {node}. Divide"
            " other datasets by shard."
        )
    return node
