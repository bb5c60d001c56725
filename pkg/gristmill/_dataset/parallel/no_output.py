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
from gristmill._dataset.parallel.pipeline import Pipeline
from gristmill._engine.no_output import count_batches

# Nodes that return at most one element for each element of their parent.
_NO_MORE = (FilterIterDataset, MapWithIndexIterDataset, RandomMapIterDataset)


def warn_of_no_output(pipeline: Pipeline) -> None:
    """Warn if no stream of a chain has an element, whatever its functions do."""
    steps = []
    node: Any = pipeline.dataset
    while is_ours(node) and (node._stride is not None or isinstance(node, _NO_MORE)):
        steps.append(node)
        node = node._parent
    if type(node) is not PrefetchIterDataset or pipeline.sequential:
        return
    try:
        elements = len(node._parent)
    except Exception:
        return  # Computing the chain will raise the same error.
    # Part 0 has the most elements.
    count = most = -(-elements // pipeline.parts)
    dropping = None
    for step in reversed(steps):
        if isinstance(step, BatchIterDataset):
            size, drops = step._batch_size, step._drop_remainder
            count, too_few = count_batches(count, f"{step}", size, drops)
            dropping = too_few or dropping
    if count:
        return
    reason = "There are no elements for it."
    if dropping is not None:
        reason = (
            f"Each of its {pipeline.parts} streams has at most {most} of {elements}"
            f" elements. {dropping} Batch before to_iter_dataset(), or pass streams=1,"
            " fewer workers, a smaller batch size, or drop_remainder=False."
        )
    warn_user(f"This chain gives no element. {reason}")
