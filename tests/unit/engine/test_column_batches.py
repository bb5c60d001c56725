"""Batches made from columns, and their errors, equal those of stacked rows."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import datasets
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import gristmill as g
from gristmill import batching
from gristmill._engine.column_batches import batch_of_columns
from gristmill.sources import ParquetDataSource, TableSource, as_columns, as_source
from support.arrow_types import same

SMALL = st.integers(-3, 3)
TEXT = st.text("ab\0é", max_size=3)
KINDS = {
    pa.int8(): SMALL,
    pa.int64(): st.sampled_from([0, -1, 2**62]),
    pa.uint64(): st.sampled_from([0, 2**64 - 1]),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.timestamp("us"): SMALL,
    pa.date32(): SMALL,
    pa.string(): TEXT,
    pa.binary(): st.binary(max_size=3),
    pa.decimal128(5, 2): st.decimals(-9, 9, places=2),
    pa.null(): st.none(),
    pa.list_(pa.int32()): st.lists(SMALL, max_size=2),
    pa.list_(pa.float32(), 2): st.lists(st.floats(width=32), min_size=2, max_size=2),
    pa.list_(pa.string()): st.lists(TEXT, min_size=1, max_size=2),
    pa.list_(pa.list_(pa.int8())): st.lists(st.lists(SMALL, max_size=1), max_size=1),
    pa.struct({"b": pa.int64(), "a": pa.string()}): st.fixed_dictionaries(
        {"b": st.none() | SMALL, "a": TEXT}
    ),
    pa.map_(pa.string(), pa.int8()): st.lists(st.tuples(TEXT, SMALL), max_size=2),
}
RULES = st.sampled_from(["plain", "jax"])


@st.composite
def tables(draw):
    """Draw a table of 1 to 9 rows, in which many columns have no missing values."""
    count = draw(st.integers(1, 9))
    columns = {}
    for name in draw(st.lists(st.sampled_from("cab"), min_size=1, unique=True)):
        kind, values = draw(st.sampled_from(list(KINDS.items())))
        if draw(st.booleans()):
            values = st.none() | values
        made = draw(st.lists(values, min_size=count, max_size=count))
        columns[name] = pa.array(made, kind)
    return pa.table(columns)


def keys_of(count):
    return st.lists(st.integers(0, count - 1), min_size=1, max_size=6)


def outcome(make):
    """Return a batch, or the type and text of the error that prevents it."""
    try:
        return make()
    except Exception as error:
        return type(error), str(error)


def alloc(shape, dtype):
    assert not dtype.hasobject
    return np.empty(shape, dtype)


def objects_of(batch):
    """Return the columns of objects, from which NumPy might make different arrays."""
    if not isinstance(batch, dict):
        return []
    leaves = batch.items()
    arrays = [(n, leaf) for n, leaf in leaves if isinstance(leaf, np.ndarray)]
    return [n for n, leaf in arrays if leaf.dtype.hasobject and leaf.ndim == 1]


def check(source, keys, rules):
    """Compare a batch made from columns with the stacked rows of the same records."""
    for make in (None, alloc):
        columns = as_columns(source)
        made = batch_of_columns(columns, np.array(keys, np.int64), make, rules)
        rows = outcome(lambda: [source[key] for key in keys])
        if isinstance(rows, tuple):
            assert made is None
            continue
        objects = [] if made is None else objects_of(made[0])
        for name in objects:
            assert same(list(made[0][name]), [row[name] for row in rows])
        names = sorted(rows[0]) if rules == "jax" else [*rows[0]]
        others = [{n: v for n, v in row.items() if n not in objects} for row in rows]
        stacked = outcome(
            lambda others=others, make=make: batching.make_batch(
                others, rules=rules, alloc=make
            )
        )
        if made is None:
            # Only batches that raise are left to the row path.
            assert isinstance(stacked, tuple), stacked
            continue
        assert same({n: made[0][n] for n in names if n not in objects}, stacked)
        assert list(made[0]) == names
        for leaf in made[0].values():
            assert not isinstance(leaf, np.ndarray) or leaf.flags.writeable


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(tmp_path_factory.mktemp("columns") / "rows.parquet")


@settings(max_examples=120)
@given(st.data())
def test_batch_of_parquet_file_equals_stacked_rows(path, data):
    table = data.draw(tables())
    parquet.write_table(table, path, row_group_size=data.draw(st.integers(1, 5)))
    source = ParquetDataSource(path, cache_bytes=data.draw(st.sampled_from([0, 1000])))
    check(source, data.draw(keys_of(len(table))), data.draw(RULES))


@settings(max_examples=120)
@given(st.data())
def test_batch_of_arrow_table_equals_stacked_rows(data):
    table = data.draw(tables())
    cut = data.draw(st.integers(0, len(table)))
    source = as_source(pa.concat_tables([table.slice(cut), table.slice(0, cut)]))
    check(source, data.draw(keys_of(len(table))), data.draw(RULES))


ARRAYS = {
    "number": np.arange(5, dtype=np.int16),
    "foreign": np.arange(5, dtype=">f4"),
    "text": np.array(["a", "bbb", "", "cc", "d"]),
    "object": np.array([1, 2, 2.5, 3, 4], object),
    "record": np.array([(1, 2.0)] * 5, [("x", "u1"), ("y", "f4")]),
    "texts": np.array([["a", "bbb"]] * 5),
    "strided": np.arange(20)[::4],
}


def test_batch_of_nested_lists_equals_stacked_rows():
    column = pa.array([[[1, 2], [3, 4]]] * 6, pa.list_(pa.list_(pa.int8(), 2), 2))
    table = pa.table({"x": pa.chunked_array([column[:3], column[3:]])})
    check(as_source(table), np.arange(1, 5), "plain")


@given(
    st.lists(st.sampled_from(list(ARRAYS)), min_size=1, unique=True), keys_of(5), RULES
)
def test_batch_of_dict_of_arrays_equals_stacked_rows(names, keys, rules):
    check(TableSource({name: ARRAYS[name] for name in names}), keys, rules)


HF = {
    "int32": np.arange(9, dtype=np.int32),
    "uint64": np.arange(9, dtype=np.uint64) + 2**63,
    "float64": np.arange(9) / 3,
    "half": np.arange(9, dtype=np.float16),
    "bool": np.arange(9) % 2 == 0,
    "missing": [1, None] * 4 + [2],
    "text": ["a", "bb", ""] * 3,
    "even": [[1, 2]] * 9,
    "ragged": [[1, 2], [3]] * 4 + [[]],
    "struct": [{"x": 1, "y": "z"}] * 9,
    "time": pa.array(range(9), pa.timestamp("us")),
}


def hugging_face(names):
    """Return a dataset of some columns in chunks of 4 rows."""
    table = pa.table({name: HF[name] for name in names})
    chunks = pa.Table.from_batches(table.to_batches(max_chunksize=4))
    return datasets.Dataset(chunks)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(list(HF)), min_size=1, max_size=4, unique=True),
    st.sampled_from(
        [
            {"type": None},
            {"type": "numpy"},
            {"type": "numpy", "dtype": np.float64},
            {"type": "torch"},
        ]
    ),
    st.booleans(),
    keys_of(9),
    RULES,
)
def test_batch_of_hugging_face_dataset_equals_stacked_rows(
    names, form, shuffled, keys, rules
):
    dataset = hugging_face(names).with_format(**form)
    if shuffled:
        dataset = dataset.shuffle(seed=1)
    rows = outcome(lambda: batching.make_batch(dataset.__getitems__(keys), rules=rules))
    made = batch_of_columns(as_columns(dataset), np.array(keys, np.int64), None, rules)
    if made is None:
        assert isinstance(rows, tuple)
    else:
        assert same(made[0], rows)


class RowByRow:
    """Serves the rows of a source without its columns."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return len(self.source)

    def __getitem__(self, key):
        return self.source[key]


def loader(source, workers=0, on_error="raise"):
    return g.DataLoader(
        data_source=source,
        sampler=g.IndexSampler(40, shuffle=True, num_epochs=1, seed=3),
        operations=[g.Batch(6)],
        worker_count=workers,
        streams=2,
        on_error=on_error,
    )


@pytest.fixture
def rows(tmp_path):
    """Write a Parquet file of 40 rows; some row groups have missing values."""
    file = str(tmp_path / "rows.parquet")
    columns = {
        "number": [*range(30), None, *range(9)],
        "half": np.arange(40) / 2,
        "name": [None if i == 20 else f"name {i}" for i in range(40)],
        "vector": [[i, i] for i in range(40)],
    }
    parquet.write_table(pa.table(columns), file, row_group_size=7)
    return ParquetDataSource(file)


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)
def test_loaders_make_batches_from_columns(rows, workers):
    numbers = ParquetDataSource(rows.paths, columns=["number", "half", "vector"])
    found, theirs = list(loader(numbers, workers)), list(loader(RowByRow(numbers)))
    assert len(found) == len(theirs) == 8
    assert all(map(same, found, theirs))


def chains(source):
    """Yield one iterable over batches for each kind of chain."""
    chain = g.MapDataset.source(source).seed(4).shuffle().repeat(2)
    yield chain.batch(6)
    yield chain.to_iter_dataset().batch(6, drop_remainder=True)
    yield chain[3:].to_iter_dataset().batch(6).map(lambda batch: batch)


def test_datasets_make_batches_from_columns(rows):
    numbers = ParquetDataSource(rows.paths, columns=["number", "half", "vector"])
    for ours, theirs in zip(chains(numbers), chains(RowByRow(numbers)), strict=True):
        assert all(map(same, ours, list(theirs)))


def test_column_batches_make_no_rows(rows, monkeypatch):
    def no_row(self, *arguments):
        raise AssertionError("a row was made")

    for name in ("__getitem__", "__getitems__"):
        monkeypatch.setattr(ParquetDataSource, name, no_row)
    numbers = ParquetDataSource(rows.paths, columns=["half"])
    monkeypatch.setattr(ParquetDataSource, "columns_are_rows", True)
    assert len(list(loader(numbers))) == 8
    for batches in chains(numbers):
        assert len(next(iter(batches))["half"]) == 6


def test_source_with_custom_rows_is_read_by_row(rows):
    class Other(ParquetDataSource):
        def __getitem__(self, key):
            return {"key": key}

    assert list(next(iter(loader(Other(rows.paths))))) == ["key"]


def failure(batches):
    with pytest.raises(Exception) as caught:
        list(batches)
    return type(caught.value), str(caught.value), getattr(caught.value, "__notes__", [])


def test_unstackable_columns_raise_like_rows(rows):
    source = as_source(pa.table({"x": range(40), "ragged": [[1], [1, 2]] * 20}))
    assert failure(loader(source)) == failure(loader(RowByRow(source)))
    kinds = zip(chains(source), chains(RowByRow(source)), strict=True)
    for ours, theirs in kinds:
        assert failure(ours) == failure(theirs)


def test_damaged_row_group_is_skipped_row_by_row(tmp_path):
    file = tmp_path / "rows.parquet"
    table = pa.table({"x": np.arange(40)})
    parquet.write_table(
        table, file, row_group_size=10, compression=None, use_dictionary=False
    )
    begin = parquet.ParquetFile(file).metadata.row_group(2).column(0).data_page_offset
    content = bytearray(file.read_bytes())
    content[begin : begin + 8] = b"\xff" * 8
    file.write_bytes(content)
    for source in (ParquetDataSource(file), RowByRow(ParquetDataSource(file))):
        iterator = iter(loader(source, on_error="skip"))
        found = np.concatenate([batch["x"] for batch in iterator])
        assert sorted(found) == [*range(20), *range(30, 40)]
        assert iterator.errors.count == 10
