"""Warns about chains in workers without outputs, like `gristmill._engine.no_output`."""

from __future__ import annotations

from typing import Any

from gristmill._base.user_lines import warn_user
from gristmill._dataset.model.node import is_ours
from gristmill._dataset.nodes.batch import BatchIterDataset
from gristmill._dataset.nodes.map import (
    FilterIterDataset,
    MapWithIndexIterDataset,
    RandomMapIterDataset,
)
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._dataset.parallel.chain_program import ChainProgram
from gristmill._engine.no_output import count_batches

# Nodes that return at most one element for each element of their parent.
_AT_MOST_ONE_TO_ONE = (FilterIterDataset, MapWithIndexIterDataset, RandomMapIterDataset)


def warn_of_no_output(program: ChainProgram) -> None:
    """Warn if no stream of a chain has an element, whatever its functions do."""
    steps = []
    node: Any = program.dataset
    while is_ours(node) and (
        node._elements_per_output is not None or isinstance(node, _AT_MOST_ONE_TO_ONE)
    ):
        steps.append(node)
        node = node._parent
    if type(node) is not PrefetchIterDataset or program.sequential:
        return
    try:
        elements = len(node._parent)
    except Exception:
        return  # Computing the chain will raise the same error.
    # Part 0 has the most elements.
    count = max_count = -(-elements // program.parts)
    drop_text = None
    for step in reversed(steps):
        if isinstance(step, BatchIterDataset):
            size, drops = step._batch_size, step._drop_remainder
            count, batch_drop_text = count_batches(count, f"{step}", size, drops)
            drop_text = batch_drop_text or drop_text
    if count:
        return
    reason = "Its dataset has no elements."
    if drop_text is not None:
        reason = (
            f"Each of its {program.parts} streams has at most {max_count} of {elements}"
            f" elements. {drop_text} Batch before to_iter_dataset(), or pass streams=1,"
            " fewer workers, a smaller batch size, or drop_remainder=False."
        )
    warn_user(f"This chain gives no element. {reason}")
