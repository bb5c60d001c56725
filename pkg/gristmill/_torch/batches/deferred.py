"""Batches of a `MapDataset` whose last steps are computed for a batch at once.

See `gristmill._base.deferred`.  If a batch cannot be computed this way, torch's fetch
is used, which raises torch's error.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Subset

from gristmill._base.deferred import Deferred, deferred_else_eager
from gristmill._base.threads import threads_to_compute
from gristmill._torch import private
from gristmill._torch.batches import slot_collation
from gristmill._torch.batches.native import Fetch
from gristmill._torch.indices.draws import as_list


def deferred_fetch(dataset: Any, fetch: Fetch) -> Fetch | None:
    """Return a fetch that computes deferred steps per batch, or None if none apply.

    Args:
        dataset: A map-style dataset, read in batches by a `collate_fn` for which
            `native.is_torch_collate` returns True.
        fetch: Torch's fetch: takes an item of a batch sampler and returns the batch.
    """
    # A process with a deferred chain has imported this module.  Importing it here
    # would slow down workers of other datasets.
    if "gristmill._dataset" not in sys.modules:
        return None
    from gristmill._dataset.model.blocks import block_of
    from gristmill._dataset.model.map_dataset import MapDataset
    from gristmill._dataset.nodes.deferred_steps import defer_steps

    base = dataset
    while type(base) is Subset:
        base = base.dataset
    chain = defer_steps(base) if isinstance(base, MapDataset) else None
    if chain is None:
        return None

    # Its errors are not seen: `deferred_else_eager` then calls torch's fetch.
    def compute_batch(indices: list[Any]) -> Any:
        inner = dataset
        while type(inner) is Subset:
            inner_indices = inner.indices
            indices = [inner_indices[index] for index in indices]
            inner = inner.dataset
        if inner is not base:
            raise RuntimeError("the dataset of a Subset was replaced")
        try:
            samples = block_of(chain, np.array(indices, np.int64))
        except StopIteration as end:
            raise RuntimeError("the dataset has no more elements") from end
        return _collate(samples)

    def fetch_deferred(batch: Any) -> Any:
        indices = as_list(batch)
        return deferred_else_eager(
            lambda: compute_batch(indices), lambda: fetch(indices)
        )

    return fetch_deferred


def _collate(samples: list[Any]) -> Any:
    """Collate samples like ``default_collate``, and compute their deferred leaves."""
    rules = {**private.collation(), Deferred: _stack}
    return private.collate(samples, collate_fn_map=rules)


def _stack(column: list[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
    """Return a tensor of the deferred leaves, in memory from `slot_collation`."""
    tensors: list[torch.Tensor] = []

    def alloc(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        size = int(np.prod(shape)) * dtype.itemsize
        tensors.append(slot_collation.new_bytes(size))
        array: npt.NDArray[Any] = tensors[-1].numpy()
        return array.view(dtype).reshape(shape)

    array = column[0].stack(column, alloc, threads_to_compute())
    # Return a view of the tensor that `new_bytes` made, not one of the array:
    # `slot_collation.move_live_batches` tracks only the storages that it made.
    is_bfloat16 = array.dtype.name == "bfloat16"
    dtype = torch.bfloat16 if is_bfloat16 else torch.from_numpy(array[:0]).dtype
    return tensors[-1].view(dtype).view(array.shape)
