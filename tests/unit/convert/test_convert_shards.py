"""`gristmill convert` splits records into contiguous shards."""

import os
import tempfile

import pytest

from gristmill._convert import conversion
from gristmill._convert import inputs as inputs_module
from support.cli import names, read_array_record, run, shards, write_tf_record
from support.conversions import flat, left, sample


@pytest.fixture
def inputs(tmp_path):
    """Write three inputs; return their paths and records."""
    parts = [sample(101, 1), sample(50, 2), sample(150, 3)]
    paths = [
        write_tf_record(tmp_path / "a.tfrecord", parts[0]),
        write_tf_record(tmp_path / "b.tfrecord.gz", parts[1], "gzip"),
        write_tf_record(tmp_path / "c.tfrecord", parts[2]),
    ]
    return paths, parts


def test_shards_are_contiguous_and_even(tmp_path, inputs):
    paths, parts = inputs
    done = run("convert", *paths, tmp_path / "out" / "x", "--shards", 7)
    assert done.status == 0, done.err
    found = [read_array_record(p) for p in shards(tmp_path / "out", "x", 7)]
    assert [len(records) for records in found] == [43] * 7
    assert flat(found) == flat(parts)


@pytest.mark.multiprocess
def test_output_is_independent_of_process_count(tmp_path, inputs):
    paths, _ = inputs
    for processes in 1, 3:
        done = run(
            *("convert", *paths, tmp_path / f"{processes}" / "x"),
            *("--shards", 10, "--processes", processes),
        )
        assert done.status == 0, done.err
    one, three = ([p.read_bytes() for p in shards(tmp_path / n, "x", 10)] for n in "13")
    assert one == three


def test_tf_record_file_is_indexed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    paths = [
        write_tf_record(tmp_path / name, sample(50, seed))
        for seed, name in enumerate(["a.tfrecord", "b.tfrecord"])
    ]
    loaded = []
    opened = inputs_module._open_tf_record

    def note(*arguments):
        opened.cache_clear()  # As in another process.
        name = os.path.basename(arguments[0])
        found = any((tmp_path / "scratch").rglob(f"{name}-*-index"))
        file = opened(*arguments)
        loaded.append((name, found))
        return file

    monkeypatch.setattr(inputs_module, "_open_tf_record", note)
    arguments = ("--shards", 4, "--processes", 1)
    assert run("convert", *paths, tmp_path / "out", *arguments).status == 0
    # Counting writes the indexes; later opens find them.
    assert loaded[:2] == [("a.tfrecord", False), ("b.tfrecord", False)]
    assert {name for name, _ in loaded[2:]} == {"a.tfrecord", "b.tfrecord"}
    assert all(found for _, found in loaded[2:])
    found = read_array_record(*shards(tmp_path, "out", 4))
    assert found == [*sample(50, 0), *sample(50, 1)]
    # The indexes are removed.
    assert names(tmp_path / "scratch") == []
    assert [name for name in names(tmp_path) if "index" in name] == []


def test_shards_inputs_keeps_input_boundaries(tmp_path, inputs):
    paths, parts = inputs
    done = run("convert", *paths, tmp_path / "x", "--shards", "inputs")
    assert done.status == 0, done.err
    assert [read_array_record(p) for p in shards(tmp_path, "x", 3)] == parts


def test_there_may_be_more_shards_than_records(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"a", b"b"])
    assert run("convert", path, tmp_path / "x", "--shards", 4).status == 0
    found = [read_array_record(p) for p in shards(tmp_path, "x", 4)]
    assert found == [[], [b"a"], [], [b"b"]]


def test_no_records_make_an_empty_file(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [])
    assert run("convert", path, tmp_path / "x.arrayrecord").status == 0
    assert read_array_record(tmp_path / "x.arrayrecord") == []


def test_patterns_are_sorted(tmp_path):
    for name in "cab":
        write_tf_record(tmp_path / f"{name}.tfrecord", [name.encode()])
    assert run("convert", tmp_path / "?.tfrecord", tmp_path / "x").status == 0
    assert read_array_record(tmp_path / "x.array_record") == [b"a", b"b", b"c"]


def test_resumes_after_failed_rename(tmp_path, inputs, monkeypatch):
    paths, parts = inputs
    arguments = ("convert", *paths, tmp_path / "x", "--shards", 4, "--processes", 1)
    replace, calls = os.replace, []

    def fail_at_the_third(source, target):
        calls.append(target)
        if len(calls) == 3:
            raise OSError(5, "Input/output error", source)
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(conversion.os, "replace", fail_at_the_third)
        done = run(*arguments)
    assert done.status == 1
    assert "x-00002-of-00004.array_record.part: Input/output error." in done.err
    assert len(left(tmp_path)) == 2
    done = run(*arguments)
    assert (done.status, "already finished." in done.out) == (0, True)
    assert flat(map(read_array_record, shards(tmp_path, "x", 4))) == flat(parts)
