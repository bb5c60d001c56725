"""Tests that sources of a thousand files pickle small and have fast reprs."""

import hashlib
import json
import os
import pathlib
import pickle
import struct
import tarfile

import pyarrow
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from pyarrow import parquet

from gristmill import sources
from gristmill.sources._file_paths import FilePaths
from support.tf_record_files import framed

FILES = 1_000


def write_array_record(path):
    writer = ArrayRecordWriter(path, "group_size:1")
    writer.write(b"record")
    writer.close()


def write_tf_record(path):
    with open(path, "wb") as file:
        file.write(framed(b"record"))


def write_parquet(path):
    parquet.write_table(pyarrow.table({"x": [7]}), path)


def write_tar(path):
    with tarfile.open(path, "w") as file:
        file.addfile(tarfile.TarInfo("a.txt"))


def write_mds(path):
    with open(path, "wb") as file:
        file.write(struct.pack("<3Iq", 1, 12, 20, 7))


def open_mds(paths):
    folder = pathlib.Path(paths[0]).parent
    entry = {"version": 2, "format": "mds", "samples": 1, "compression": None}
    entry |= {"column_names": ["x"], "column_encodings": ["int"], "column_sizes": [8]}
    files = [
        {"basename": os.path.basename(path), "bytes": 20, "hashes": {}}
        for path in paths
    ]
    index = {"version": 2, "shards": [{**entry, "raw_data": file} for file in files]}
    (folder / "index.json").write_text(json.dumps(index))
    return sources.MDSDataSource(folder)


KINDS = {
    "array_record": (write_array_record, sources.ArrayRecordDataSource),
    "tf_record": (write_tf_record, sources.TFRecordDataSource),
    "tar": (write_tar, sources.TarDataSource),
    "mds": (write_mds, open_mds),
    "parquet": (write_parquet, sources.ParquetDataSource),
}


@pytest.fixture(scope="module", params=KINDS)
def source(request, tmp_path_factory):
    write, make = KINDS[request.param]
    folder = tmp_path_factory.mktemp("many")
    paths = [str(folder / f"train-{i:05d}-of-{FILES:05d}") for i in range(FILES)]
    write(paths[0])
    for path in paths[1:]:
        os.link(paths[0], path)
    with make(paths) as made:
        yield made


def test_pickle_has_at_most_100_bytes_per_file(source):
    data = pickle.dumps(source)
    assert len(data) <= 100 * FILES
    with pickle.loads(data) as again:
        assert list(again.paths) == list(source.paths)
        assert len(again) == FILES
        assert again[FILES - 1] == source[FILES - 1]
        assert repr(again) == repr(source)


def test_paths_are_hashed_once(source, monkeypatch):
    text = repr(source)
    monkeypatch.setattr(hashlib, "sha1", None)
    monkeypatch.setattr(hashlib, "sha256", None)
    assert repr(source) == text
    assert repr(pickle.loads(pickle.dumps(source))) == text


def test_names_of_any_characters_survive_pickling():
    paths = FilePaths(["a\udcff\n'", "", "b\0c"])
    assert pickle.loads(pickle.dumps(paths)) == paths
