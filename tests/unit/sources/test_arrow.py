"""Tests of Arrow tables and Hugging Face datasets as data sources."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import datasets
import numpy as np
import pyarrow as pa
import pytest

from gristmill import (
    Batch,
    DataLoader,
    IndexSampler,
    MapTransform,
    ReadOptions,
    SequentialSampler,
    StateMismatch,
)
from gristmill.samplers import GroupShuffleSampler
from gristmill.sources import TableSource, _arrow, as_source
from gristmill.sources._arrow import ArrowSource
from support.arrow_types import TYPES, same

PLAIN = {
    "int": pa.array([3, 1, 2]),
    "float": pa.array([0.5, 1.5, 2.5], pa.float32()),
    "half": pa.array(np.array([1, 2, 3], np.float16)),
    "timestamp": pa.array([1, 2, 3], pa.timestamp("us")),
    "vector": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2)),
}
MAYBE_WORKERS = [0, pytest.param(2, marks=pytest.mark.multiprocess)]


def batches(source, workers=0, batch=4, epochs=1, steps=(), **options):
    loader = DataLoader(
        data_source=source,
        sampler=IndexSampler(len(source), shuffle=True, num_epochs=epochs, seed=3),
        operations=[*steps, Batch(batch)],
        worker_count=workers,
        streams=2,
        **options,
    )
    return list(loader)


def alike(ours, theirs):
    assert len(ours) == len(theirs)
    return all(map(same, ours, theirs))


@pytest.mark.parametrize("make", [pa.table, pa.record_batch])
def test_numeric_columns_are_read_without_a_copy(make):
    table = make(PLAIN)
    source = as_source(table)
    assert isinstance(source, TableSource)
    assert source.gathers
    for name in ("int", "float", "vector"):
        column = source._columns[name]
        buffer = table.column(name).chunk(0) if make is pa.table else table.column(name)
        buffer = buffer.flatten() if name == "vector" else buffer
        assert column.ctypes.data == buffer.buffers()[1].address
    for i in range(3):
        row = {name: array.to_numpy(False)[i] for name, array in PLAIN.items()}
        assert same(source[i], row)


# pyarrow converts integers in a list with a null to floats.
@pytest.mark.parametrize("name", [name for name in TYPES if name != "list with nulls"])
def test_row_has_the_values_of_its_column(name):
    whole = pa.chunked_array([TYPES[name], TYPES[name].slice(1)])
    source = as_source(pa.table({name: whole}))
    assert isinstance(source, ArrowSource)
    if name == "struct":
        values = [whole.slice(i, 1).to_numpy()[0] for i in range(5)]
    else:
        values = list(whole.to_numpy())
    rows = [{name: value} for value in values]
    assert alike([source[i] for i in range(5)], rows)
    assert alike(source.__getitems__([4, 0, 0]), [rows[4], rows[0], rows[0]])
    for i in range(5):
        assert same(source.__getitems__([i])[0], rows[i])


VIEW, BYTES_VIEW = pa.string_view(), pa.binary_view()
VIEWS = {
    "str": pa.array(["a", None, "a long string that is not in the view"], VIEW),
    "bytes": pa.array([b"a", b"\0\xff", b""], BYTES_VIEW),
    "list": pa.array([["a", None], [], None], pa.list_(VIEW)),
    "large list": pa.array([["a"], [], None], pa.large_list(VIEW)),
    "fixed list": pa.array([["a", "b"], ["c", None], None], pa.list_(VIEW, 2)),
    "struct": pa.array([{"x": "a", "y": 1}, None, {"x": None}]).cast(
        pa.struct({"x": VIEW, "y": pa.int64()})
    ),
    "map": pa.array([[("a", b"b")], None, []], pa.map_(VIEW, BYTES_VIEW)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_columns_of_views_match_plain_columns(name):
    column = pa.chunked_array([VIEWS[name], VIEWS[name].slice(1)])
    source = as_source(pa.table({"number": range(5), name: column}))
    plain = pa.array(column.to_pylist(), _arrow._plain_type(column.type))
    assert "view" not in str(plain.type)
    theirs = as_source(pa.table({"number": range(5), name: plain}))
    assert alike(source.__getitems__([4, 0, 0]), theirs.__getitems__([4, 0, 0]))
    assert alike([source[i] for i in range(5)], [theirs[i] for i in range(5)])


def test_slice_of_table_is_read_from_its_start():
    table = pa.table({**PLAIN, "name": ["a", "b", "c"]})
    assert as_source(table.slice(1))[0]["name"] == "b"
    numbers = as_source(table.select(list(PLAIN)).slice(1))
    assert isinstance(numbers, TableSource)
    assert numbers[0]["int"] == 1
    assert numbers[0]["vector"].tolist() == [3, 4]


def test_matrices_in_a_slice_keep_their_values():
    # pyarrow 25 takes the wrong rows from such slices.
    rows = [[[i, i + 1], [i + 2, i + 3]] for i in range(6)]
    column = pa.array(rows, pa.list_(pa.list_(pa.int8(), 2), 2)).slice(1)
    source = as_source(pa.table({"x": column, "name": list("abcde")}))
    for found in (source.__getitems__([1, 0]), [source[1], source[0]]):
        assert [[*map(list, row["x"])] for row in found] == [rows[2], rows[1]]
    batch = source.columns_at(np.array([1, 0]))["x"]
    assert [[*map(list, value)] for value in batch] == [rows[2], rows[1]]


def test_chunks_with_different_dictionaries_are_read():
    chunks = [
        pa.DictionaryArray.from_arrays([1, 0], pa.array([name, None])) for name in "ab"
    ]
    source = as_source(pa.table({"x": pa.chunked_array(chunks)}))
    rows = source.__getitems__([3, 0, 1])
    assert [row["x"] for row in rows] == ["b", None, "a"]


@pytest.mark.parametrize("index", [-1, 3])
def test_index_past_end_of_table_is_refused(index):
    source = ArrowSource(pa.table({"x": ["a", "b", "c"]}))
    with pytest.raises(IndexError, match=f"Index {index} out of range for 3"):
        source[index]


def test_duplicate_column_names_are_refused():
    with pytest.raises(ValueError, match=r"different names, got \['x', 'x'\]"):
        as_source(pa.table([[1], [2]], names=["x", "x"]))


def test_table_without_rows_is_refused():
    for table in (pa.table({"x": pa.array([], pa.int64())}), pa.table({})):
        with pytest.raises(ValueError, match="with 0 records"):
            as_source(table)


@pytest.mark.parametrize("workers", MAYBE_WORKERS)
@pytest.mark.parametrize("chunks", [1, 3])
def test_loaders_serve_tables(workers, chunks):
    table = pa.concat_tables([pa.table({**PLAIN, "s": ["x", "yy", "z"]})] * chunks)
    for chosen in (table, table.drop_columns("s"), table.combine_chunks()):
        rows = [
            {name: chosen.column(name).to_numpy()[i] for name in chosen.column_names}
            for i in range(3 * chunks)
        ]
        expected = batches(rows, batch=2)
        found = batches(chosen, workers, batch=2)
        assert alike([dict(sorted(b.items())) for b in found], expected)


def test_state_names_table_without_its_rows():
    def loader(table):
        return DataLoader(
            data_source=table, sampler=SequentialSampler(3), operations=[Batch(2)]
        )

    table = pa.table({"secret": ["a", "b", "c"]})
    iterator = iter(loader(table))
    next(iterator)
    state = iterator.get_state()
    assert b"ArrowSource(rows=3, columns={'secret': string})" in state
    again = iter(loader(table))
    again.set_state(state)
    assert next(again)["secret"].tolist() == ["c"]
    other = iter(loader(pa.table({"secret": [1.0, 2.0, None]})))
    with pytest.raises(StateMismatch):
        other.set_state(state)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Return a dataset of 20 rows that is mapped from a file."""
    columns = {
        "key": list(range(20)),
        "name": [f"name {i}" for i in range(20)],
        "vector": [[i, i + 0.5] for i in range(20)],
    }
    folder = tmp_path_factory.mktemp("dataset")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns).save_to_disk(folder)
    mapped = datasets.load_from_disk(folder)
    assert mapped.cache_files
    return mapped


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
@pytest.mark.parametrize("workers", MAYBE_WORKERS)
def test_loaders_serve_hugging_face_datasets(dataset, workers, form):
    source = dataset.with_format(form)
    expected = batches([source[i] for i in range(20)])
    found = batches(source, workers)
    assert alike(found, expected)
    assert sorted(key for batch in found for key in batch["key"].tolist()) == [
        *range(20)
    ]


def test_dataset_with_selected_rows_is_served(dataset):
    source = dataset.select(range(5, 15)).shuffle(seed=1)
    assert alike(batches(source), batches([source[i] for i in range(10)]))


def test_rows_for_steps_are_read_in_blocks(dataset, monkeypatch):
    class Same(MapTransform):
        def map(self, row):
            return row

    asked = []
    read = datasets.Dataset.__getitems__

    def counting(self, keys):
        asked.append(len(keys))
        return read(self, keys)

    monkeypatch.setattr(datasets.Dataset, "__getitems__", counting)
    # Disable threads, which would read single rows on a slow machine.
    options = ReadOptions(num_threads=0, prefetch_buffer_size=0)
    batches(dataset, epochs=2, steps=[Same()], read_options=options)
    assert asked == [4] * 10


def test_state_with_dataset_restores(dataset):
    def iterator():
        sampler = GroupShuffleSampler([5] * 4, num_epochs=1, seed=1)
        loader = DataLoader(data_source=dataset, sampler=sampler, operations=[Batch(3)])
        return iter(loader)

    first, second = iterator(), iterator()
    next(first)
    second.set_state(first.get_state())
    assert alike(list(second), list(first))
