"""Journals of conversions, and those that others may have written."""

import hashlib
import json
import os
import struct

import pytest

from support.cli import names, read_array_record, run, shards, write_tf_record
from support.conversions import sample


def planted(folder, names, **lines):
    """Write a journal for `x` which claims that a conversion wrote these files."""
    header = {"inputs": [], "outputs": names, "writer_options": "", "ranges": "even"}
    entries = [{"conversion": header}, *lines.values()]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / ".x.convert.jsonl").write_text(text)


SHARD = {"shard": 0, "records": 1, "record_bytes": 1, "file_bytes": 1, "sha256": ""}


@pytest.mark.parametrize("options", [(), ("--restart",)])
@pytest.mark.parametrize("lines", [{}, {"shard": SHARD}])
def test_planted_journal_deletes_nothing(tmp_path, options, lines):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"new"])
    out = tmp_path / "out"
    (out / "deep").mkdir(parents=True)
    mine = [
        *("model.pt", "xy.array_record", "x.tfrecord", "x-1-of-2.array_record"),
        *("x-00000-of-00002", "x.array_record.bak", "in-00000-of-00001.array_record"),
        *("x-00000-of-00002.array_record\n", "x..array_record", "deep/x.array_record"),
        "x-\u0663\u0663\u0663\u0663\u0663-of-00002.array_record",
    ]
    parts = [".model.pt.part", ".xy.array_record.part"]
    others = [tmp_path / "x.array_record", *(out / name for name in [*mine, *parts])]
    for other in others:
        other.write_text("mine")
    absolute = [str(other) for other in others]
    upward = ["../x.array_record", "deep/../model.pt", "", ".", "..", "deep"]
    planted(out, [*mine, *absolute, *upward], **lines)
    done = run("convert", path, out / "x", *options)
    assert done.status == (1 if lines and not options else 0), done.err
    assert [other.read_text() for other in others] == ["mine"] * len(others)


def test_restart_removes_earlier_outputs(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"new"])
    for options in (("--shards", 3), ("--shards", 2), ()):
        assert run("convert", path, tmp_path / "x", *options, "--restart").status == 0
    assert run("convert", path, tmp_path / "x.arrayrecord", "--restart").status == 0
    assert names(tmp_path) == [".x.convert.jsonl", "in.tfrecord", "x.arrayrecord"]


def test_restart_does_not_remove_inputs(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"a", b"b"])
    assert run("convert", path, tmp_path / "x", "--shards", 2).status == 0
    made = shards(tmp_path, "x", 2)
    done = run("convert", *made, tmp_path / "x", "--restart")
    assert done.status == 1
    assert f"{made[0]} is an input, and would be removed" in done.err
    assert read_array_record(*made) == [b"a", b"b"]


@pytest.mark.parametrize("target", ["mine", "nothing"])
def test_linked_journal_is_rejected(tmp_path, target):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"new"])
    (tmp_path / "mine").write_text("")
    (tmp_path / ".x.convert.jsonl").symlink_to(tmp_path / target)
    done = run("convert", path, tmp_path / "x", "--restart")
    assert done.status == 1
    assert "expected the journal of a conversion, found a link. Move it" in done.err
    assert (tmp_path / "mine").read_text() == ""
    assert names(tmp_path) == [".x.convert.jsonl", "in.tfrecord", "mine"]


def test_pipe_as_journal_is_rejected(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"new"])
    os.mkfifo(tmp_path / ".x.convert.jsonl")
    done = run("convert", path, tmp_path / "x")
    assert done.status == 1
    assert "journal of a conversion, found a special file. Move it" in done.err


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        '{"conversion": []}',
        '{"conversion": {}}',
        '{"conversion": {"inputs": 1, "outputs": []}}',
        '{"conversion": {"inputs": [1], "outputs": []}}',
        '{"conversion": {"inputs": [], "outputs": [[]]}}',
        '{"conversion": {"inputs": [], "outputs": []}}\n{"counts": "many"}',
        '{"conversion": {"inputs": [], "outputs": []}}\n{"shard": {}}',
    ],
)
def test_malformed_journal_does_not_crash(tmp_path, line):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"new"])
    (tmp_path / ".x.convert.jsonl").write_text(line + "\n")
    done = run("convert", path, tmp_path / "x", "--restart")
    assert (done.status, done.err.count("\n")) in ((0, 0), (1, 1))


def test_foreign_files_are_not_replaced(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"new"])
    (tmp_path / "x.array_record").write_text("mine")
    done = run("convert", path, tmp_path / "x")
    assert done.status == 1
    assert "x.array_record exists already, and this conversion did not" in done.err
    assert (tmp_path / "x.array_record").read_text() == "mine"
    assert names(tmp_path) == ["in.tfrecord", "x.array_record"]
    assert run("convert", path, tmp_path / "x", "--restart").status == 0
    assert read_array_record(tmp_path / "x.array_record") == [b"new"]
    (tmp_path / ".y.convert.jsonl").write_text("mine")
    done = run("convert", path, tmp_path / "y")
    assert "expected the journal of a conversion, found another file" in done.err
    assert (tmp_path / ".y.convert.jsonl").read_text() == "mine"


def test_journal_checksums_are_reproducible(tmp_path):

    records = sample(100)
    path = write_tf_record(tmp_path / "in.tfrecord", records)
    assert run("convert", path, tmp_path / "x").status == 0
    last = (tmp_path / ".x.convert.jsonl").read_text().splitlines()[-1]
    contents = hashlib.sha256(b"".join(records)).digest()
    sizes = hashlib.sha256(b"".join(struct.pack("<Q", len(r)) for r in records))
    assert json.loads(last) == {
        "shard": 0,
        "records": 100,
        "record_bytes": sum(map(len, records)),
        "file_bytes": os.path.getsize(tmp_path / "x.array_record"),
        "sha256": hashlib.sha256(contents + sizes.digest()).hexdigest(),
    }
