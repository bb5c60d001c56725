"""Column facts from the statistics of a Parquet file; needs the pyarrow package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from gristmill.sources._arrow_values import (
    MAX_EXACT_INT,
    has_null_value,
    is_nested,
    is_wide,
)
from gristmill.sources._columns import ColumnFacts

__all__ = ["facts_of_columns"]


def facts_of_columns(footer: Any, schema: pa.Schema) -> dict[str, ColumnFacts]:
    """Return the facts of the columns whose dtype depends on them.

    A column without statistics may have any value that its type allows.

    Args:
        footer: The ``FileMetaData`` of pyarrow.
        schema: The columns with the types that decoding gives them.
    """
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    facts = {}
    leaf_number = 0  # Of the first Parquet column that stores the field.
    for field in schema:
        if not is_nested(field.type) and not has_null_value(field.type):
            # The level is 0 for a column that the file declares as required.
            is_optional = footer.schema.column(leaf_number).max_definition_level > 0
            chunks = (group.column(leaf_number).statistics for group in groups)
            facts[field.name] = _facts(chunks, is_optional, is_wide(field.type))
        leaf_number += _leaf_count(field.type)
    return facts


def _facts(
    chunks: Iterable[Any], is_optional: bool, has_wide_ints: bool
) -> ColumnFacts:
    """Return the facts of one column from the statistics of its chunks.

    Args:
        chunks: The ``Statistics`` of pyarrow, or None for a chunk that has none.
        is_optional: Whether a value may be missing.
        has_wide_ints: Whether the column has integers of 64 bits.
    """
    has_nulls = has_large_ints = False
    for chunk in chunks:
        has_count = chunk is not None and chunk.has_null_count
        has_nulls |= is_optional and not (has_count and chunk.null_count == 0)
        if has_wide_ints and not has_large_ints:
            has_large_ints = not _is_exact(chunk)
        # Stop if no other chunk can change the facts.
        if has_nulls >= is_optional and has_large_ints >= has_wide_ints:
            break
    return ColumnFacts(has_nulls, has_large_ints)


def _is_exact(chunk: Any) -> bool:
    """Return whether the statistics prove that all integers are exact as float64."""
    if chunk is None:
        return False
    if chunk.has_min_max:
        return bool(chunk.min >= -MAX_EXACT_INT and chunk.max <= MAX_EXACT_INT)
    return bool(chunk.has_null_count and chunk.num_values == 0)


def _leaf_count(kind: pa.DataType) -> int:
    """Return the number of Parquet columns that store a column of this type."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return sum(map(_leaf_count, inner)) or 1
