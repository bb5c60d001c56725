"""Makes batches of a source's columns without making its rows."""

from __future__ import annotations

from typing import Any

from gristmill import batching
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill._engine.stream_keys import KeyBlocks
from gristmill.sources import TableSource
from gristmill.sources._columns import ColumnSource


class ColumnBatches:
    """Makes batches from a source's columns.  Same interface as `NativeBatches`.

    Attributes:
        is_table: Whether the source is a table in memory.
    """

    def __init__(self, source: ColumnSource, keys: KeyBlocks, rules: Rules) -> None:
        self._source = source
        self._keys = keys
        self._rules = rules
        self.is_table = isinstance(source, TableSource)

    def batch(
        self, position: int, count: int, alloc: Alloc | None
    ) -> tuple[Any, Int64Array] | None:
        """Return the batch of `count` records from `position` on, and their keys.

        Returns None if the batch must be made of rows.
        """
        keys = self._keys.block(position, count)
        batch = batch_of_columns(self._source, keys, alloc, self._rules)
        return None if batch is None else (batch[0], keys)

    def start(self, position: int, count: int) -> None:
        """Do nothing: no batch is read ahead."""

    def forget(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def batch_of_columns(
    source: ColumnSource, keys: Int64Array, alloc: Alloc | None, rules: Rules
) -> tuple[Any] | None:
    """Return the batch of some records as a tuple with one element.

    Returns None if that fails, so that the caller can read the records one by one and
    find the bad one.
    """
    try:
        columns = source.columns_at(keys, alloc)
        if not isinstance(columns, dict):
            return (columns,)
        for name, column in columns.items():
            if type(column) is list:  # It must still be stacked.
                columns[name] = batching.make_batch(column, rules=rules, alloc=alloc)
        if rules == "jax":  # These rules sort the keys of a dict.
            columns = {name: columns[name] for name in sorted(columns)}
        return (columns,)
    except Exception:
        return None
