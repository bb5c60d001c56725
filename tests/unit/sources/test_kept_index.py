"""Tests of the index of an ArrayRecord file's chunks, saved for all processes."""

import os
import pathlib
import pickle
import re
import shutil

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import gristmill as gm
from faults.scripts import run
from gristmill import _core, sources
from gristmill.sources import _sidecars
from support.places import ROOT

COUNT = 20_000


def write(path, first=0, count=COUNT):
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for i in range(first, first + count):
        writer.write(b"%d" % i)
    writer.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    write(folder / "data")
    write(folder / "other", first=7)
    return folder


@pytest.fixture
def data(written, tmp_path, monkeypatch):
    """Return a file with enough chunks to save an index, in its own folder."""
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return pathlib.Path(shutil.copy(written / "data", tmp_path / "data"))


def index_of(path):
    return path.with_name(f".{path.name}.gristmill-index")


def check(path, first=0, **options):
    """Read some records of all parts of the file."""
    source = sources.ArrayRecordDataSource(path, **options)
    keys = np.random.default_rng(0).integers(0, COUNT, 300).tolist()
    assert source.__getitems__(keys) == [b"%d" % (first + key) for key in keys]


def test_first_reader_saves_index_and_others_map_it(data):
    check(data)
    made = index_of(data).stat()
    check(data)
    assert index_of(data).stat() == made
    assert sorted(os.listdir(data.parent)) == [index_of(data).name, "data"]
    file = _core.RecordFile(str(data), index_paths=[str(index_of(data))])
    assert (len(file), file.num_chunks, file.group_size) == (COUNT, COUNT, 1)
    assert file.options == _core.RecordFile(str(data)).options
    for chunk in (0, 63, 64, COUNT - 1):
        assert file.chunk(chunk) == _core.RecordFile(str(data)).chunk(chunk)
    mapped = pathlib.Path("/proc/self/maps").read_text()
    assert str(index_of(data)) in mapped


def test_index_file_matches_format_page(data):
    check(data)
    kept = index_of(data).read_bytes()
    file = _core.RecordFile(str(data))
    page = (ROOT / "docs/formats/index.md").read_text()
    rows = re.findall(r"^\| (\d+)-(\d+) \| (u\d+)? *\|", page, re.M)
    starts = [int(start) for start, _, _ in rows]
    found = [
        int.from_bytes(kept[int(start) : int(end) + 1], "little")
        for start, end, _ in rows[1:]
    ]
    assert starts == [0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72]
    assert kept[:8] == b"GRISTMIX"
    version, _, *stamp, _, records, in_each, chunks, end, options = found
    assert (version, stamp) == (1, [data.stat().st_size, data.stat().st_mtime_ns])
    assert (records, in_each, chunks) == (COUNT, 1, COUNT)
    assert end == file.chunk(COUNT - 1)[1]
    assert kept[len(kept) - options :].decode() == file.options
    groups = -(-COUNT // 64) + 1
    assert int.from_bytes(kept[80:88], "little") == file.chunk(0)[0]
    begin = 80 + 16 * groups
    assert kept[len(kept) - options - 8 : len(kept) - options] == bytes(8)
    # The first chunk of a group begins at the group's offset. Its record is b"0".
    offset_bytes, size_bytes = kept[94], kept[95]
    assert kept[begin : begin + offset_bytes] == bytes(offset_bytes)
    size = kept[begin + offset_bytes : begin + offset_bytes + size_bytes]
    assert int.from_bytes(size, "little") == 1


def test_opening_and_counting_write_no_index(data):
    assert len(sources.ArrayRecordDataSource(data)) == COUNT
    assert os.listdir(data.parent) == ["data"]


def test_short_index_is_not_saved(tmp_path):
    path = tmp_path / "short"
    write(path, count=1000)
    assert sources.ArrayRecordDataSource(path)[7] == b"7"
    assert os.listdir(tmp_path) == ["short"]


@pytest.mark.multiprocess
def test_workers_map_existing_index(data):
    check(data)
    made = index_of(data).stat()
    loader = gm.DataLoader(
        data_source=sources.ArrayRecordDataSource(data),
        sampler=gm.SequentialSampler(64),
        worker_count=2,
    )
    assert list(loader) == [b"%d" % i for i in range(64)]
    assert index_of(data).stat() == made


WRONG = {
    "empty": lambda good, other: b"",
    "torn": lambda good, other: good[: len(good) // 2],
    "zeros": lambda good, other: bytes(len(good)),
    "longer": lambda good, other: good + bytes(8),
    "damaged": lambda good, other: good[:5000] + b"!" + good[5001:],
    "of another file": lambda good, other: other,
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_index_is_rebuilt(data, written, kind):
    other = pathlib.Path(shutil.copy(written / "other", data.parent))
    check(other, first=7)
    check(data)
    good = index_of(data).read_bytes()
    index_of(data).unlink()
    index_of(data).write_bytes(WRONG[kind](good, index_of(other).read_bytes()))
    check(data)
    assert index_of(data).read_bytes() == good


def test_replaced_file_gets_new_index(data, written):
    check(data)
    data.unlink()
    shutil.copy(written / "other", data)
    check(data, first=7)


def test_unwritable_data_folder_saves_index_in_cache(data, tmp_path):
    index_of(data).mkdir()  # A file cannot be renamed to a folder.
    check(data)
    (kept,) = (tmp_path / "cache/array_record").iterdir()
    made = kept.stat()
    check(data)
    assert kept.stat() == made


@pytest.fixture
def no_place(data, tmp_path, monkeypatch):
    """Make the folders of the data and of the cache unwritable for an index."""
    index_of(data).mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "file"))


def test_unwritable_folders_save_index_in_shared_memory(
    data, no_place, tmp_path, monkeypatch
):
    monkeypatch.setattr(_sidecars, "SHARED_MEMORY", str(tmp_path))
    folder = tmp_path / f"gristmill-{os.getuid()}"
    check(data)
    (kept,) = (folder / "array_record").iterdir()
    made = kept.stat()
    check(data)
    assert kept.stat() == made
    kept.unlink()
    folder.chmod(0o777)  # Any user could have written these files.
    check(data)
    assert not kept.exists()


def test_shared_memory_folder_is_in_dev_shm():
    *_, last = _sidecars.sidecar_paths("/data/x", "tar")
    folder = os.path.dirname(last)
    assert folder == f"/dev/shm/gristmill-{os.getuid()}/tar"
    assert os.path.ismount("/dev/shm")


def test_records_are_read_if_index_cannot_be_saved(
    data, no_place, tmp_path, monkeypatch
):
    monkeypatch.setattr(_sidecars, "SHARED_MEMORY", str(tmp_path / "file"))
    check(data)
    assert os.listdir(tmp_path / "data") != ["data"]
    assert list(index_of(data).iterdir()) == []


def test_index_dir_chooses_folder_of_index(data, tmp_path):
    check(data, index_dir=tmp_path / "lists")
    assert os.listdir(data.parent) == ["data"]
    assert len(os.listdir(tmp_path / "lists")) == 1
    source = sources.ArrayRecordDataSource(data, index_dir=tmp_path / "lists")
    assert pickle.loads(pickle.dumps(source))[5] == b"5"


@pytest.mark.multiprocess
def test_killed_writer_leaves_whole_index_or_none(data):
    run("kept_index/killed_writers", data, index_of(data), 200)
