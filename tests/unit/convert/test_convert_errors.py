"""Failed conversions name the cause, and leave no output."""

import io
import sys

import pytest
import zstandard

from gristmill._base import progress_bar
from gristmill._convert.errors import ConversionError
from gristmill._convert.line_inputs import LinesInput
from support.cli import (
    limit_files,
    names,
    read_array_record,
    run,
    start,
    write_array_record,
    write_tf_record,
)
from support.conversions import left, sample
from support.tf_record_files import framed


def test_damaged_record_is_located(tmp_path):
    records = sample(20)
    path = write_tf_record(tmp_path / "in.tfrecord", records)
    content = bytearray(path.read_bytes())
    content[sum(len(framed(r)) for r in records[:13]) + 12] ^= 1
    path.write_bytes(content)
    done = run("convert", path, tmp_path / "x", "--shards", 2, "--processes", 1)
    assert done.status == 1
    assert f"{path}: record 13" in done.err
    assert done.err.count("\n") == 1
    assert left(tmp_path) == []


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_damaged_compressed_files_are_named(tmp_path, compression):
    path = write_tf_record(tmp_path / "in.tfrecord", sample(200), compression)
    path.write_bytes(path.read_bytes()[:-500])
    done = run("convert", path, tmp_path / "x")
    assert done.status == 1
    assert str(path) in done.err
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ('{"a": 1}\n{"b": \n', (), "line 2 is not JSON: Expecting value"),
        ("[1]", ("--encode", "example"), "line 1: expected a JSON object, got a list"),
        (
            '\n{"a": {"b": [1, "x"]}}',
            ("--encode", "example"),
            "line 2: 'a/b' must be a list of numbers or of texts",
        ),
    ],
)
def test_wrong_lines_are_named(tmp_path, text, options, expected):
    (tmp_path / "in.jsonl").write_text(text)
    done = run("convert", tmp_path / "in.jsonl", tmp_path / "x", *options)
    assert done.status == 1
    assert f"{tmp_path}/in.jsonl: {expected}" in done.err
    assert left(tmp_path) == []


def test_fixed_input_needs_no_restart_before_first_shard(tmp_path):
    (tmp_path / "in.jsonl").write_text("{")
    assert run("convert", tmp_path / "in.jsonl", tmp_path / "x").status == 1
    (tmp_path / "in.jsonl").write_text("{}")
    assert run("convert", tmp_path / "in.jsonl", tmp_path / "x").status == 0


def test_wrong_files_are_named(tmp_path):
    (tmp_path / "in.parquet").write_bytes(b"not Parquet")
    (tmp_path / "empty").mkdir()
    for arguments, expected in (
        ((tmp_path / "in.parquet", tmp_path / "x"), "in.parquet: "),
        ((tmp_path / "no", tmp_path / "x"), "no: there is no such file or folder."),
        ((tmp_path / "no*", tmp_path / "x"), "no*: no file matches this pattern."),
        ((tmp_path / "empty", tmp_path / "x"), "empty: this folder contains no files."),
        (
            (tmp_path / "in.parquet", tmp_path / "in.parquet" / "x"),
            "in.parquet: File exists.",
        ),
    ):
        done = run("convert", *arguments)
        assert done.status == 1
        assert done.err.startswith("gristmill: ")
        assert expected in done.err
        assert done.err.count("\n") == 1
    assert left(tmp_path) == []


@pytest.mark.multiprocess
def test_full_disk_leaves_no_partial_file(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", sample(2000, most=1000))
    arguments = ("convert", path, tmp_path / "x", "--compression", "none")
    process = start(*arguments)
    limit_files(process, 300_000)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "File too large" in err
    assert f"{tmp_path}/.x.array_record.part" in err
    assert names(tmp_path) == [".x.convert.jsonl", "in.tfrecord"]
    assert run(*arguments).status == 0
    assert len(read_array_record(tmp_path / "x.array_record")) == 2000


@pytest.mark.claim(
    "Gristmill reads ArrayRecord files and needs the array-record package to "
    "write them."
)
def test_missing_writer_error_names_the_extra(tmp_path, monkeypatch):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"x"])
    module = "array_record.python.array_record_module"
    monkeypatch.setitem(sys.modules, module, None)
    done = run("convert", path, tmp_path / "x")
    assert done.status == 1
    assert "pip install 'gristmill[convert]'" in done.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("IN",), "the following arguments are required: OUT"),
        (("IN", "OUT", "--shards", "0"), "'0' is not an integer of at least 1"),
        (("IN", "OUT", "--compression", "lz4"), "must be none, zstd[:LEVEL], brotli"),
        (("IN", "OUT", "--compression", "zstd:23"), "from -131072 to 22"),
        (("IN", "OUT", "--from", "csv"), "invalid choice: 'csv'"),
        (("IN", "OUT", "--shard", "3"), "unrecognized arguments: --shard"),
        (("IN", "/tmp/"), "OUT must be a file, got the folder /tmp/"),
        (("IN", "OUT", "--with-names"), "--with-names needs a folder of files"),
        (("IN", "OUT", "--follow-links"), "--follow-links needs a folder"),
        (("IN", "OUT", "--encode", "json"), "--encode needs Parquet or JSON lines"),
    ],
)
def test_misuse_exits_with_status_2(tmp_path, arguments, expected):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"x"])
    real = {"IN": path, "OUT": tmp_path / "x"}
    done = run("convert", *[real.get(each, each) for each in arguments])
    assert done.status == 2
    assert expected in done.err
    assert names(tmp_path) == ["in.tfrecord"]


def test_urls_are_rejected(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"x"])
    for arguments in (
        (path, "gs://bucket/x"),
        ("s3://bucket/*.tfrecord", tmp_path / "x"),
    ):
        done = run("convert", *arguments)
        assert done.status == 1
        assert "expected a file on a disk, got a URL" in done.err


def test_input_as_output_is_rejected(tmp_path):
    path = write_array_record(tmp_path / "x.array_record", [b"kept"])
    done = run("convert", path, tmp_path / "x", "--restart")
    assert done.status == 1
    assert "is both an input and an output" in done.err
    assert read_array_record(path) == [b"kept"]


def test_progress_is_shown_on_one_line(monkeypatch):

    now = iter([0.0, 0.0, 10.0, 10.0, 20.0, 20.0, 20.0])
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: next(now))
    out = io.StringIO()
    bar = progress_bar.Bar(out)
    bar.begin("records", 2000, 0)
    bar.advance(500)
    bar.end()
    shown = [line.rstrip() for line in out.getvalue().split("\r")]
    assert shown == [
        "",
        "[                              ]   0% 0/2,000 records",
        "[########                      ]  25% 500/2,000 records, 50/s, 0:30 left",
        *("", ""),
    ]


def test_progress_shows_tokens_per_second(monkeypatch):
    now = iter([0.0, 0.0, 10.0, 10.0, 20.0, 20.0, 20.0])
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: next(now))
    out = io.StringIO()
    bar = progress_bar.Bar(out)
    bar.begin("documents", 2000, 1000, tokens=50_000)
    bar.advance(500, 7000)
    bar.end()
    shown = out.getvalue().split("\r")[2].rstrip()
    assert "75% 1,500/2,000 documents, 57,000 tokens, 700/s, 0:10 left" in shown


def test_quiet_prints_nothing(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"x"])
    assert run("convert", path, tmp_path / "x", "--quiet") == (0, "", "")


def test_truncated_zstd_lines_are_an_error(tmp_path):
    frames = zstandard.compress(b'{"n": 1}\n') + zstandard.compress(b'{"n": 2}\n')
    (tmp_path / "in.jsonl").write_bytes(frames[:-1])
    done = run("convert", tmp_path / "in.jsonl", tmp_path / "out")
    assert done.status == 1
    assert "in.jsonl: damaged compressed data: the file ends within a zstd" in done.err


def test_text_file_removed_during_conversion_is_named(tmp_path):
    path = str(tmp_path / "gone.txt")
    source = LinesInput(path, index_dir=str(tmp_path))
    with pytest.raises(ConversionError, match=r"gone\.txt"):
        source.can_seek()
