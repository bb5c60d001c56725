"""Describes what a node of a chain has in tokens, for drawings.

Nothing is read except the lengths of documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill._dataset.nodes.counted_mix import CountedMixIterDataset
from gristmill._dataset.nodes.mix_arguments import MixRule
from gristmill._dataset.nodes.plan_packing import PackMapDataset
from gristmill._dataset.nodes.planned_mix import PlannedMixMapDataset
from gristmill._dataset.nodes.source import SourceMapDataset
from gristmill.sources._token_source import TokenSource

# The rows of more documents are not counted, because that takes more than about 0.5 s.
MAX_COUNTED_DOCUMENTS = 1 << 22
# The most stages of a schedule to show.
MAX_STAGES = 4


def facts_of(dataset: Any) -> tuple[str, ...]:
    """Return the numbers of tokens, rows and shares of a node, one a line.

    Returns:
        The lines; none if the node does not count tokens, or if the lengths of its
        documents cannot be read.
    """
    try:
        if isinstance(dataset, SourceMapDataset):
            return _facts_of_source(dataset._source)
        if isinstance(dataset, PackMapDataset):
            return _facts_of_rows(dataset)
    except Exception:  # File systems of URLs may raise anything.
        return ()
    if isinstance(dataset, (PlannedMixMapDataset, CountedMixIterDataset)):
        return _facts_of_shares(dataset._rule, len(dataset._parents))
    return ()


def _facts_of_source(source: Any) -> tuple[str, ...]:
    if not isinstance(source, TokenSource):
        return ()
    tokens = int(source.lengths().sum(dtype=np.int64))
    return (f"{len(source):,} documents, {tokens:,} tokens",)


def _facts_of_rows(dataset: PackMapDataset) -> tuple[str, ...]:
    totals, epochs = dataset.plan.totals, dataset._num_epochs
    if totals["documents"] * epochs > MAX_COUNTED_DOCUMENTS:
        return (f"{totals['tokens'] * epochs:,} tokens in rows",)
    counts = dataset.pack_counts()
    lines = [
        f"{counts.rows:,} rows, {counts.packed_tokens:,} tokens,"
        f" {counts.density:.2%} full"
    ]
    if counts.dropped_documents:
        lines.append(
            f"dropped documents: {counts.dropped_documents:,}"
            f" ({counts.dropped_tokens:,} tokens)"
        )
    return tuple(lines)


def _facts_of_shares(rule: MixRule, count: int) -> tuple[str, ...]:
    names = rule.names or [f"parent {number}" for number in range(count)]
    lines = []
    for stage in rule.stages[:MAX_STAGES]:
        shares = ", ".join(
            f"{name} {weight:.2%}"
            for name, weight in zip(names, stage.weights, strict=True)
        )
        start = f"after {stage.start:,.0f} {rule.progress_unit}: "
        lines.append(f"{start if len(rule.stages) > 1 else ''}{shares} of {rule.unit}")
    hidden = len(rule.stages) - MAX_STAGES
    if hidden > 0:
        lines.append(f"and {hidden:,} more stages")
    return tuple(lines)
