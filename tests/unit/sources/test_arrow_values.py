"""Tests that values of Arrow tables and Parquet files match pyarrow's `to_pylist`."""

import datetime
import decimal
import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from gristmill import Batch, DataLoader, IndexSampler
from gristmill.sources import ParquetDataSource, as_columns, as_source
from gristmill.sources._arrow import ArrowSource
from support.arrow_columns import Maker, as_python, is_flat, kinds, spoil


def columns(parquet=False):
    """Return a strategy for sliced, chunked columns of any type, maybe with nulls."""
    seeds = st.integers(0, 2**32)
    return st.builds(
        lambda seed, kind: Maker(seed, parquet).column(kind), seeds, kinds(parquet)
    )


def check_values(source, column):
    """Compare the rows and columns of a source with its original column."""
    expected = [as_python(value) for value in column.to_pylist()]
    count = len(expected)
    keys = [*range(count), 0, count - 1]
    for _ in range(2):
        for rows in ([source[key] for key in keys], source.__getitems__(keys)):
            values = [row["x"] for row in rows]
            assert as_python(values) == [expected[key] for key in keys]
            for value in values:
                spoil(value)
    dtypes = set()
    for chosen in (keys, *([key] for key in range(count))):
        found = as_columns(source).columns_at(np.array(chosen))["x"]
        assert as_python(list(found)) == [expected[key] for key in chosen]
        dtypes.add(getattr(found, "dtype", "to be stacked"))
    assert len(dtypes) == 1
    if column.null_count and is_flat(column.type):
        assert dtypes != {"to be stacked"}


@settings(max_examples=80)
@given(columns())
def test_values_of_any_arrow_column_match_to_pylist(column):
    check_values(ArrowSource(pa.table({"x": column})), column)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(tmp_path_factory.mktemp("values") / "rows.parquet")


@settings(max_examples=80)
@given(columns(parquet=True), st.integers(1, 5), st.booleans())
def test_values_of_any_parquet_column_match_to_pylist(path, column, rows, statistics):
    table = pa.table({"x": column})
    try:
        parquet.write_table(
            table, path, row_group_size=rows, write_statistics=statistics
        )
        read = parquet.read_table(path).column("x")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        assume(False)  # pyarrow cannot write or read some nested types.
    check_values(ParquetDataSource(path), read)


def both_sources(column, path, **options):
    """Return sources for a column: a table of two chunks, and a Parquet file."""
    table = pa.table({"x": column})
    parquet.write_table(table, path, **options)
    cut = len(table) // 2
    chunks = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    return as_source(chunks), ParquetDataSource(path)


WORDS = pa.array(["u", "v", None, "u"])
DICTIONARIES = {
    "texts": WORDS,
    "bytes": WORDS.cast(pa.binary()),
    "integers": pa.array([1, 2**53 + 1, None, 1]),
    "floats": pa.array([0.5, 1.5, None, 0.5]),
    "dates": pa.array([1, 2, None, 1], pa.date32()),
    "all missing": pa.nulls(4, pa.string()),
}


@pytest.mark.parametrize("name", DICTIONARIES)
@pytest.mark.parametrize("within", ["column", "ordered", "struct", "list"])
def test_dictionaries_keep_their_missing_values(path, name, within):
    column = DICTIONARIES[name].dictionary_encode()
    if within == "ordered":
        codes = column.indices, column.dictionary
        column = pa.DictionaryArray.from_arrays(*codes, ordered=True)
    elif within == "struct":
        column = pa.StructArray.from_arrays([column], ["field"])
    elif within == "list":
        column = pa.ListArray.from_arrays([0, 1, 3, 4], column)
    for source in both_sources(column, path):
        # Iteration by index ends at an IndexError.
        assert as_python([row["x"] for row in source]) == as_python(column.to_pylist())
        check_values(source, column)


def test_list_views_keep_their_values(path):
    column = pa.array([[1], None, [], [2, 3]], pa.list_view(pa.int64()))
    for source in both_sources(column, path, row_group_size=2):
        check_values(source, column)


# Types, values, and the dtypes of the column without and with a missing value.
DTYPES = [
    (pa.int8(), range(3), "i1", "f8"),
    (pa.uint32(), range(3), "u4", "f8"),
    (pa.int64(), [-(2**53), 0, 2**53], "i8", "f8"),
    (pa.int64(), [0, 1, 2**53 + 1], "i8", "O"),
    (pa.int64(), [0, 1, -(2**53) - 1], "i8", "O"),
    (pa.uint64(), [0, 1, 2**53], "u8", "f8"),
    (pa.uint64(), [0, 1, 2**64 - 1], "u8", "O"),
    (pa.float16(), [0.5, 1, 2], "f2", "f2"),
    (pa.float32(), [0.5, 1, 2], "f4", "f4"),
    (pa.float64(), [0.5, 1, 2], "f8", "f8"),
    (pa.bool_(), [True, False, True], "?", "O"),
    (pa.date32(), range(3), "M8[D]", "M8[D]"),
    (pa.timestamp("us", "UTC"), range(3), "M8[us]", "M8[us]"),
    (pa.duration("ms"), range(3), "m8[ms]", "m8[ms]"),
    (pa.time64("us"), range(3), "O", "O"),
    (pa.decimal128(5, 2), [decimal.Decimal(i) for i in range(3)], "O", "O"),
    (pa.string(), "abc", "U1", "O"),
    (pa.binary(), [b"a", b"b", b"c"], "S1", "O"),
    (pa.uuid(), [bytes([i]) * 16 for i in range(3)], "O", "O"),
    (pa.dictionary(pa.int8(), pa.int16()), range(3), "i2", "f8"),
    (pa.dictionary(pa.int8(), pa.string()), "abc", "U1", "O"),
]


@pytest.mark.parametrize("number", range(len(DTYPES)))
@pytest.mark.parametrize("lacks", [False, True])
def test_column_has_one_dtype_in_an_epoch(path, number, lacks):
    kind, values, complete, lacking = DTYPES[number]
    dtype = lacking if lacks else complete
    values = [*values] * 7
    if lacks:
        values[10] = None
    column = pa.array(values, kind)
    for source in both_sources(column, path, row_group_size=5):
        loader = DataLoader(
            data_source=source,
            sampler=IndexSampler(21, shuffle=True, num_epochs=1, seed=3),
            operations=[Batch(2)],
        )
        batches = [batch["x"] for batch in loader]
        assert {batch.dtype for batch in batches} == {np.dtype(dtype)}
        assert all(batch.flags.writeable for batch in batches)
        found = [as_python(value) for batch in batches for value in batch]
        expected = map(as_python, column.to_pylist())
        assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("statistics", [True, False])
def test_required_column_keeps_its_dtype(path, statistics):
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    table = pa.table({"x": [1, 2, 2**53 + 1]}, schema)
    parquet.write_table(table, path, write_statistics=statistics)
    assert ParquetDataSource(path)[2]["x"].dtype == np.int64


def test_integers_without_statistics_are_exact(path):
    column = pa.array([1, 2, 2**53 + 1])
    parquet.write_table(pa.table({"x": column}), path, write_statistics=False)
    source = ParquetDataSource(path)
    assert [row["x"] for row in source] == column.to_pylist()
    assert source.columns_at(np.arange(3))["x"].dtype == np.object_


@pytest.mark.parametrize("large", [2, 2**53 + 1])
def test_all_files_decide_the_dtype_of_a_column(tmp_path, large):
    paths = [tmp_path / "large.parquet", tmp_path / "lacking.parquet"]
    for path, values in zip(paths, ([1, large], [None, 3]), strict=True):
        parquet.write_table(pa.table({"x": pa.array(values)}), path)
    source = ParquetDataSource(paths)
    dtypes = {source.columns_at(np.array([key]))["x"].dtype for key in range(4)}
    assert dtypes == {np.dtype("f8" if large == 2 else "O")}
    assert as_python([row["x"] for row in source]) == [1, large, None, 3]


LISTS = {
    "list": pa.list_(pa.float32()),
    "large list": pa.large_list(pa.float32()),
    "list view": pa.list_view(pa.float32()),
    "fixed list": pa.list_(pa.float32(), 2),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_rows_are_writable(path, name):
    column = pa.array([[1, 2], [3, 4]], LISTS[name])
    for source in (as_source(pa.table({"x": column})), *both_sources(column, path)):
        rows = [source[0], source[1]]
        if hasattr(source, "__getitems__"):
            rows += source.__getitems__([0, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for row in rows:
                torch.from_numpy(row["x"]).add_(1)
        assert [row["x"].tolist() for row in rows[:2]] == [[2, 3], [4, 5]]
        assert source[0]["x"].tolist() == [1, 2]
    assert column.to_pylist() == [[1, 2], [3, 4]]


def test_integer_list_with_null_holds_objects(path):
    column = pa.array([[1, None], [2**53 + 1, 3], None])
    for source in both_sources(column, path, row_group_size=2):
        lacking, whole, missing = (row["x"] for row in source)
        assert (lacking.dtype, lacking.tolist()) == (np.dtype("O"), [1, None])
        assert (whole.dtype, whole.tolist()) == (np.dtype("i8"), [2**53 + 1, 3])
        assert missing is None


def test_times_in_structs_are_python_or_numpy_types(path):
    moment = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
    naive = moment.replace(tzinfo=None)
    kind = pa.struct(
        {
            "zone": pa.timestamp("us", "UTC"),
            "naive": pa.timestamp("us"),
            "ns": pa.timestamp("ns"),
            "date": pa.date32(),
        }
    )
    row = {"zone": moment, "naive": naive, "ns": naive, "date": moment.date()}
    for source in both_sources(pa.array([row, None], kind), path):
        found = source[0]["x"]
        assert found == {**row, "ns": np.datetime64(naive, "ns")}
        assert isinstance(found["ns"], np.datetime64)
        assert source[1]["x"] is None


def test_duplicate_struct_field_names_are_refused(path):
    column = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(ValueError, match=r"different names, got \['a', 'a'\]"):
        ArrowSource(pa.table({"x": column}))[0]
