"""Parquet files are read row by row, starting at any row."""

import pyarrow
import pyarrow.parquet
import pytest

import gristmill
from gristmill.errors import CorruptRecord
from gristmill.experimental import ParquetIterDataset
from support.twins import assert_twins, grain


def write(path, first, rows, group):
    numbers = list(range(first, first + rows))
    table = pyarrow.table(
        {
            "x": numbers,
            "text": [f"row {i}" for i in numbers],
            "list": [[i, i + 1] for i in numbers],
            "missing": [None if i % 2 else i / 4 for i in numbers],
        }
    )
    pyarrow.parquet.write_table(table, path, row_group_size=group)
    return str(path)


def writable(row):
    """Copy the lists of a row, which Grain leaves read-only."""
    return {**row, "list": row["list"].copy()}


@pytest.mark.parametrize(("rows", "group"), [(7, 3), (6, 3), (1, 1), (5, 100)])
def test_rows_and_positions_match_grain(tmp_path, rows, group):
    path = write(tmp_path / "part.parquet", 0, rows, group)
    elements = assert_twins(
        lambda lib: lib.experimental.ParquetIterDataset(path).map(writable)
    )
    assert [row["x"] for row in elements] == list(range(rows))


def test_lists_of_rows_are_writable(tmp_path):
    path = write(tmp_path / "part.parquet", 0, 4, 2)
    for row in ParquetIterDataset(path):
        row["list"] += 1
    assert [row["list"].tolist() for row in ParquetIterDataset(path)][3] == [3, 4]


def test_several_files_are_interleaved(tmp_path):
    paths = [write(tmp_path / f"{i}", 10 * i, n, 2) for i, n in enumerate([3, 4, 2])]
    elements = assert_twins(
        lambda lib: lib.experimental.ParquetIterDataset(paths).map(writable)
    )
    assert [row["x"] for row in elements] == [0, 10, 20, 1, 11, 21, 2, 12, 13]


def test_rows_span_several_conversion_blocks(tmp_path):
    path = write(tmp_path / "part.parquet", 0, 1000, 600)
    assert [row["x"] for row in ParquetIterDataset(path)] == list(range(1000))


def test_options_reach_the_reader(tmp_path):
    path = write(tmp_path / "part.parquet", 0, 3, 2)
    rows = list(ParquetIterDataset(path, read_dictionary=["text"], memory_map=True))
    assert rows[2]["text"] == "row 2"


def test_slices_divide_the_files(tmp_path):
    paths = [write(tmp_path / f"{i}", 10 * i, 2, 2) for i in range(3)]
    ds = ParquetIterDataset(paths)
    ds.set_slice(slice(1, None, 2))
    assert [row["x"] for row in ds] == [10, 11]


@pytest.mark.claim(
    "ParquetIterDataset returns a wrong value for a missing dictionary value, "
    "rounds integers above 2^53 next to missing ones, and changes dtypes "
    "between row groups"
)
def test_missing_values_do_not_change_other_values(tmp_path):
    integers = [1, 2, None, 2**53 + 1]
    words = pyarrow.array(["a", None, "b", None]).dictionary_encode()
    table = pyarrow.table({"x": integers, "word": words})
    path = str(tmp_path / "part.parquet")
    pyarrow.parquet.write_table(table, path, row_group_size=2)
    theirs = list(grain().experimental.ParquetIterDataset(path))
    ours = list(ParquetIterDataset(path))
    assert ours == table.to_pylist()
    assert [type(row["x"]).__name__ for row in theirs[1:3]] == ["int64", "float64"]
    assert theirs[3]["x"] == 2**53
    assert None not in [row["word"] for row in theirs]


def test_files_without_rows(tmp_path):
    path = write(tmp_path / "part.parquet", 0, 0, 2)
    assert list(ParquetIterDataset(path)) == []


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_missing_file_fails_at_iter(library, tmp_path):
    ds = library().experimental.ParquetIterDataset(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        iter(ds)


def test_file_of_another_format_is_named(tmp_path):
    path = tmp_path / "text"
    path.write_text("no parquet")
    with pytest.raises(CorruptRecord, match="text"):
        iter(ParquetIterDataset(path))


def test_closed_iterator_raises(tmp_path):
    iterator = iter(ParquetIterDataset(write(tmp_path / "part.parquet", 0, 2, 2)))
    next(iterator)
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)
