"""Sizes of the units of chains whose positions follow from arithmetic."""

from __future__ import annotations

from typing import Any

from gristmill._dataset.model.blocks import is_built_in
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.node import chain_of, is_ours
from gristmill._dataset.nodes.to_iter import (
    PrefetchIterDataset,
    max_source_elements,
    preferred_block,
)
from gristmill._engine.program import RUN_RECORDS


def records_of_unit(dataset: IterDataset[Any]) -> int | None:
    """Return the number of elements of a unit: one batch, or a run of small outputs.

    The elements are those of the `MapDataset` that the chain reads by index.  Returns
    None if positions do not follow from arithmetic.  A function may still return None
    for an absent element.  Then the outputs after it are computed again.
    """
    records, node = _output_records(dataset)
    if type(node) is not PrefetchIterDataset:
        return None
    nodes = chain_of(node._parent)
    if not all(is_built_in(type(each)) and each._SPARSE is None for each in nodes):
        return None
    if records == 1:  # Outputs may be batches that the part read by index has made.
        records = max(1, RUN_RECORDS // max_source_elements(node._parent))
    # Steps that take several elements get at most one unit.
    return records * -(-preferred_block(node._parent) // records)


def is_batch(dataset: IterDataset[Any]) -> bool:
    """Return True if an output has several elements of the part read by index."""
    return _output_records(dataset)[0] > 1


def _output_records(dataset: IterDataset[Any]) -> tuple[int, Any]:
    """Return the number of a node's elements that make one output, and the node."""
    records = 1
    node: Any = dataset
    while is_ours(node) and node._elements_per_output is not None:
        records *= node._elements_per_output
        node = node._parent
    return records, node
