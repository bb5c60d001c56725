"""Makes batches of columns, without a row, where a source holds columns."""

from __future__ import annotations

from typing import Any

from gristmill import batching
from gristmill._base.types import Alloc, Int64Array, Rules
from gristmill._engine.stream_keys import StreamKeys
from gristmill.sources._columns import ColumnSource


class ColumnBatches:
    """Makes the batches of one stream.  See `native_batches.NativeBatches`."""

    def __init__(self, source: ColumnSource, keys: StreamKeys, rules: Rules) -> None:
        self._source = source
        self._keys = keys
        self._rules = rules

    def batch(
        self, position: int, count: int, alloc: Alloc | None
    ) -> tuple[Any, Int64Array] | None:
        """The batch of the records at `position`, position + 1, ... and their keys.

        None where it must be made of rows.
        """
        keys = self._keys.block(position, count)
        made = batch_of_columns(self._source, keys, alloc, self._rules)
        return None if made is None else (made[0], keys)

    def start(self, position: int, count: int) -> None:
        """Do nothing: no batch is read ahead."""

    def forget(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def batch_of_columns(
    source: ColumnSource, keys: Int64Array, alloc: Alloc | None, rules: Rules
) -> tuple[Any] | None:
    """The batch that stacking some records would give, alone in a tuple.

    None where that raises: reading the records one by one finds out which is bad.
    """
    try:
        columns = source.columns_at(keys, alloc)
        if not isinstance(columns, dict):
            return (columns,)
        for name, column in columns.items():
            if type(column) is list:
                columns[name] = batching.make_batch(column, rules=rules, alloc=alloc)
        if rules == "jax":
            columns = {name: columns[name] for name in sorted(columns)}
        return (columns,)
    except Exception:
        return None
