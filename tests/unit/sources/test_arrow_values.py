"""Values of Arrow tables and Parquet files are those of pyarrow's `to_pylist`."""

import datetime
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from gristmill.sources import ParquetDataSource, as_columns, as_source
from gristmill.sources._arrow import ArrowSource
from gristmill.sources._arrow_values import is_nested
from support.arrow_columns import Maker, as_python, kinds, spoil

MANY = settings(
    max_examples=3000,
    derandomize=False,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def columns(parquet=False):
    seeds = st.integers(0, 2**32)
    return st.builds(
        lambda seed, kind: Maker(seed, parquet).column(kind), seeds, kinds(parquet)
    )


def check(source, column):
    """Compare the rows and columns of a source with the column it is made of."""
    expected = [as_python(value) for value in column.to_pylist()]
    count = len(expected)
    for _ in range(2):
        rows = [source[i]["x"] for i in range(count)]
        assert as_python(rows) == expected
        for row in rows:
            spoil(row)
    keys = [*range(count), 0, count - 1]
    together = [expected[key] for key in keys]
    for _ in range(2):
        rows = [row["x"] for row in source.__getitems__(keys)]
        assert as_python(rows) == together
        for row in rows:
            spoil(row)
    dtypes = set()
    for chosen in (keys, *([key] for key in range(count))):
        found = as_columns(source).columns_at(np.array(chosen))["x"]
        assert as_python(list(found)) == [expected[key] for key in chosen]
        dtypes.add(getattr(found, "dtype", None))
    assert len(dtypes) == 1
    if not is_nested(column.type) and column.null_count:
        assert dtypes != {None}


@MANY
@given(columns())
def test_values_of_any_arrow_column_are_pylists(column):
    check(ArrowSource(pa.table({"x": column})), column)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(tmp_path_factory.mktemp("values") / "rows.parquet")


@MANY
@given(columns(parquet=True), st.integers(1, 5), st.booleans())
def test_values_of_any_parquet_column_are_pylists(path, column, rows, statistics):
    table = pa.table({"x": column})
    try:
        parquet.write_table(
            table, path, row_group_size=rows, write_statistics=statistics
        )
        read = parquet.read_table(path).column("x")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        assume(False)  # pyarrow itself cannot write and read some types in others.
    check(ParquetDataSource(path), read)
