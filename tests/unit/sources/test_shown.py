"""Tests that a source's str shows its paths, and that its repr has a hash of them."""

import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python import array_record_module

import gristmill as grain
from gristmill import sources
from support import extras, tf_record_files


def write_array_record(path):
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for number in range(3):
        writer.write(b"%d" % number)
    writer.close()
    return sources.ArrayRecordDataSource([str(path), str(path)])


def write_tf_record(path):
    tf_record_files.write(path, [b"a", b"b", b"c"])
    return sources.TFRecordDataSource([str(path), str(path)])


def write_parquet(path):
    pq.write_table(pa.table({"x": [1, 2, 3]}), path)
    return sources.ParquetDataSource([str(path), str(path)])


def write_tar(path):
    (path.parent / "0.txt").write_text("a")
    with tarfile.open(path, "w") as file:
        file.add(path.parent / "0.txt", "0.txt")
    return sources.TarDataSource([str(path), str(path)])


def write_bag(path):
    with extras.bagz().Writer(str(path)) as writer:
        writer.write(b"a")
    return sources.BagDataSource([str(path), str(path)])


WRITERS = [write_array_record, write_tf_record, write_parquet, write_tar, write_bag]


@pytest.mark.parametrize("write", WRITERS)
def test_str_of_file_source_shows_paths(tmp_path, write):
    path = tmp_path / "file"
    source = write(path)
    name = type(source).__name__
    assert str(source).startswith(f"{name}(paths=['{path}', '{path}'], r")
    # The repr is part of states, and Grain's repr has no paths.
    assert repr(source).startswith(f"{name}(hash_of_paths=")
    loader = grain.load(source)
    assert str(path) in repr(loader)
    assert str(path) in loader._repr_html_()
    ds = grain.MapDataset.source(source).map(len)
    assert str(path) in str(ds)
    assert str(path) in ds._repr_html_()


def test_str_of_many_paths_shows_first_ones(tmp_path):
    write_tf_record(tmp_path / "file")
    source = sources.TFRecordDataSource([str(tmp_path / "file")] * 100)
    assert str(source).count("/file'") == 6
    assert ", ...], records=300)" in str(source)


def test_repr_of_source_in_memory_shows_columns():
    table = sources.TableSource({"x": np.zeros((3, 2), np.int8)})
    shown = "SourceMapDataset(source=TableSource({'x': int8[3,2]}))"
    assert repr(grain.MapDataset.source(table)) == shown
    assert repr(grain.MapDataset.source([1, 2])) == "SourceMapDataset(source=[1, 2])"
