"""Tests of reading the lines of text files by number."""

import io
import os
import pickle

import fsspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import errors, sources

BLANK = b" \t\r"


def expected_lines(data):
    """Return the lines as Python's file objects split them, without blank ones."""
    lines = [line.removesuffix(b"\n") for line in io.BytesIO(data)]
    return [line.removesuffix(b"\r") for line in lines if line.strip(BLANK)]


PIECES = st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"a", b'{"x": 1}', b"\xff\0"])


@given(st.lists(PIECES, max_size=30).map(b"".join))
@example(b"a\r")
@example(b"\r\n\n \t\n")
@settings(max_examples=200, deadline=None)
def test_lines_equal_those_of_file_objects(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "drawn"
    folder.mkdir(exist_ok=True)
    path = folder / "drawn.jsonl"
    path.write_bytes(data)
    for index in folder.glob(".*"):
        index.unlink()  # The modification time may be that of the last example.
    source = sources.JsonLinesDataSource(path)
    assert list(source) == expected_lines(data)
    assert source.sizes(range(len(source))).tolist() == [len(line) for line in source]


@pytest.mark.parametrize("before_end", [b"", b"\r"])
@pytest.mark.parametrize("shift", [-2, -1, 0, 1])
def test_lines_cross_the_windows_of_the_scan(tmp_path, shift, before_end):
    window = 256 * 1024
    long = b"x" * (window - len(before_end) + shift)
    data = b"".join(line + before_end + b"\n" for line in [long, b"y", long, b""])
    path = tmp_path / "long.jsonl"
    path.write_bytes(data)
    source = sources.JsonLinesDataSource(path)
    assert list(source) == [long, b"y", long]


@pytest.fixture
def shards(tmp_path):
    for shard, numbers in enumerate([range(100), range(0), range(100, 300)]):
        text = "".join(f'{{"n": {n}}}\n' for n in numbers)
        (tmp_path / f"part-{shard}.jsonl").write_text(text)
    return tmp_path / "part-*.jsonl"


def line(number):
    return b'{"n": %d}' % number


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_files_are_one_list_in_any_order(shards, access):
    source = sources.JsonLinesDataSource(shards, access=access)
    order = np.random.default_rng(0).permutation(300)
    assert source.__getitems__(order) == [line(n) for n in order]
    assert pickle.loads(pickle.dumps(source))[299] == line(299)
    with pytest.raises(ValueError, match=r"should be in \[0, num_records\), got 300"):
        source[300]


def test_index_is_shared_and_made_again_after_a_change(shards, tmp_path):
    path = tmp_path / "part-0.jsonl"
    assert len(sources.JsonLinesDataSource(path)) == 100
    index = tmp_path / ".part-0.jsonl.gristmill-index"
    made = index.stat().st_ino
    assert sources.JsonLinesDataSource(path)[7] == line(7)
    assert index.stat().st_ino == made
    path.write_bytes(line(5) + b"\n")
    os.utime(path, ns=(1, 1))
    assert list(sources.JsonLinesDataSource(path)) == [line(5)]
    assert index.stat().st_ino != made


def test_remote_file_equals_the_local_one(shards, tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "cache"))
    with fsspec.open("memory://far.jsonl", "wb") as far:
        far.write((tmp_path / "part-2.jsonl").read_bytes())
    source = sources.JsonLinesDataSource("memory://far.jsonl")
    assert list(source) == [line(n) for n in range(100, 300)]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_reads_all_lines(shards, workers):
    source = sources.JsonLinesDataSource(shards)
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(len(source), num_epochs=1, shuffle=True, seed=3),
        worker_count=workers,
    )
    assert sorted(loader) == sorted(line(n) for n in range(300))


def test_truncated_file_is_an_error_that_names_the_line(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_bytes(b"first\nsecond\n")
    source = sources.JsonLinesDataSource(path)
    os.truncate(path, 8)
    assert source[0] == b"first"
    with pytest.raises(errors.CorruptRecord, match=r"train\.jsonl: line 1 at offset 6"):
        source[1]


def test_empty_and_missing_files(tmp_path):
    (tmp_path / "empty.jsonl").write_bytes(b"")
    assert len(sources.JsonLinesDataSource(tmp_path / "empty.jsonl")) == 0
    with pytest.raises(FileNotFoundError):
        sources.JsonLinesDataSource(tmp_path / "none.jsonl")
