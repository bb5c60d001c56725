"""Batches of an array's rows, taken from it at once rather than one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill import batching
from gristmill._base.types import Alloc
from gristmill._dataset.model.blocks import is_built_in
from gristmill._dataset.nodes.order import IndexMapDataset
from gristmill._dataset.nodes.source import SourceMapDataset
from gristmill.sources import TableSource


class Rows:
    """The elements of a dataset, which are rows of a table in some order.

    Args:
        dataset: A dataset for which `Rows.of` is not None.
        table: The table.
    """

    def __init__(self, dataset: Any, table: TableSource) -> None:
        self._table = table
        self._plan = dataset._plan[0] if isinstance(dataset, IndexMapDataset) else None
        self._rules = batching.tree_rules()

    @classmethod
    def of(cls, dataset: Any) -> Rows | None:
        """The rows that a dataset's elements are, None where they are no such."""
        base = dataset
        if isinstance(dataset, IndexMapDataset) and is_built_in(type(dataset)):
            base = dataset._plan[1]
        if type(base) is not SourceMapDataset:
            return None
        table = base._reader
        if not isinstance(table, TableSource) or not table.gathers:
            return None
        return cls(dataset, table)

    def range(self, first: int, count: int, alloc: Alloc | None = None) -> Any:
        """The batch of `count` elements from index `first` on."""
        keys = np.arange(first, first + count, dtype=np.int64)
        if self._plan is not None:
            keys = self._plan.keys(keys)
        return self._table.gather(keys % len(self._table), alloc, self._rules)
