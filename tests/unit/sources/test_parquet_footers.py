"""Tests of cached Parquet footers, which are checked when rows are read."""

import hashlib
import json
import os
import pathlib

import pyarrow as pa
import pytest
from pyarrow import parquet

from faults.scripts import run
from gristmill import errors, sources
from gristmill.sources._parquet_files import CACHE_MIN_FILES, ParquetFiles


def write(path, count, name="x"):
    table = pa.table({name: list(range(count)), f"{name}.more": ["a"] * count})
    parquet.write_table(table, path, row_group_size=2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    write(data / "00.parquet", 3)
    for number in range(1, CACHE_MIN_FILES):
        os.link(data / "00.parquet", data / f"{number:02d}.parquet")
    return data


@pytest.fixture
def looked_at(monkeypatch):
    """Record the files whose footers are read."""
    found = []
    original = ParquetFiles._read_footer

    def look_at(self, path, file):
        found.append(pathlib.Path(path).name)
        return original(self, path, file)

    monkeypatch.setattr(ParquetFiles, "_read_footer", look_at)
    return found


def kept(folder):
    (place,) = (folder.parent / "cache" / "parquet").iterdir()
    return place


def rewrite(place, change):
    """Change the cached content, and update its checksum."""
    content = json.loads(place.read_bytes().partition(b"\n")[2])
    change(content)
    body = json.dumps(content).encode()
    place.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def test_second_source_of_same_files_reads_no_footer(folder, looked_at):
    first = sources.ParquetDataSource(folder)
    assert len(looked_at) == CACHE_MIN_FILES
    again = sources.ParquetDataSource(folder)
    assert len(looked_at) == CACHE_MIN_FILES
    assert repr(again) == repr(first)
    assert again.groups.tolist() == [2, 1] * CACHE_MIN_FILES
    assert again[len(again) - 1] == {"x": 2, "x.more": "a"}
    assert sources.ParquetDataSource(folder, ["x"])[4] == {"x": 1}
    # An option may change the type of a column.
    sources.ParquetDataSource(folder, read_dictionary=["x.more"])
    assert len(looked_at) == 2 * CACHE_MIN_FILES


def test_only_footer_of_changed_file_is_read_again(folder, looked_at):
    sources.ParquetDataSource(folder)
    looked_at.clear()
    (folder / "07.parquet").unlink()
    write(folder / "07.parquet", 6)
    for _ in range(2):
        source = sources.ParquetDataSource(folder)
        assert source.groups.tolist() == [2, 1] * 7 + [2] * 3 + [2, 1] * 24
        assert looked_at == ["07.parquet"]
    (folder / "07.parquet").unlink()
    write(folder / "07.parquet", 3, "y")
    with pytest.raises(ValueError, match=r"07\.parquet: column 'x'.*got missing"):
        sources.ParquetDataSource(folder)


READ_ERRORS = {
    "torn": lambda place: place.write_bytes(place.read_bytes()[:-9]),
    "empty": lambda place: place.write_bytes(b""),
    "other bytes": lambda place: place.write_bytes(os.urandom(1_000)),
    "no object": lambda place: rewrite(place, lambda content: content.clear()),
    "a type of no text": lambda place: rewrite(
        place, lambda content: content.update(schemas=[{"x": 5}])
    ),
    "schemas of no columns": lambda place: rewrite(
        place, lambda content: content.update(schemas=[[]])
    ),
    "fewer files": lambda place: rewrite(place, lambda content: content["files"].pop()),
    "rows below none": lambda place: rewrite(
        place, lambda content: content["files"][0].__setitem__(3, [-1])
    ),
    "rows beyond int64": lambda place: rewrite(
        place, lambda content: content["files"][0].__setitem__(3, [2**70])
    ),
    "of another pyarrow": lambda place: rewrite(
        place, lambda content: content.update(writer="1.0")
    ),
}


@pytest.mark.parametrize("fault", READ_ERRORS)
def test_damaged_cache_is_rebuilt(folder, looked_at, fault):
    sources.ParquetDataSource(folder)
    whole = kept(folder).read_bytes()
    READ_ERRORS[fault](kept(folder))
    looked_at.clear()
    source = sources.ParquetDataSource(folder)
    assert source.groups.tolist() == [2, 1] * CACHE_MIN_FILES
    assert len(looked_at) == CACHE_MIN_FILES
    assert kept(folder).read_bytes() == whole


@pytest.mark.parametrize("counts", [[2], [3], [1, 2], [2, 1, 5]])
def test_wrong_cached_row_counts_are_refused(folder, counts):
    sources.ParquetDataSource(folder)
    rewrite(kept(folder), lambda content: content["files"][0].__setitem__(3, counts))
    source = sources.ParquetDataSource(folder)
    with pytest.raises(errors.CorruptRecord, match=r"00\.parquet"):
        source[sum(counts) - 1]


@pytest.mark.parametrize(
    ("place", "text"), [(4, "missing values, found 1"), (5, "integers up to")]
)
def test_wrong_cached_column_facts_are_refused(folder, place, text):
    (folder / "00.parquet").unlink()
    table = pa.table({"x": [None, 2**53 + 1], "x.more": ["a", "b"]})
    parquet.write_table(table, folder / "00.parquet")
    assert sources.ParquetDataSource(folder)[1]["x"] == 2**53 + 1
    assert sources.ParquetDataSource(folder)[1]["x"] == 2**53 + 1
    rewrite(kept(folder), lambda content: content["files"][0].__setitem__(place, []))
    source = sources.ParquetDataSource(folder)
    with pytest.raises(errors.CorruptRecord, match=rf"00\.parquet.*'x'.*{text}"):
        source[1]


def test_footers_are_read_each_time_without_cache(folder, looked_at):
    (folder.parent / "cache").write_text("no folder")
    for times in (1, 2):
        assert len(sources.ParquetDataSource(folder)) == 3 * CACHE_MIN_FILES
        assert len(looked_at) == times * CACHE_MIN_FILES


@pytest.mark.multiprocess
def test_killed_writer_leaves_complete_cache(tmp_path):
    run("kept_index/killed_footers", tmp_path / "kept.json", 100)
