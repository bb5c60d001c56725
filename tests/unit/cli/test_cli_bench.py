"""`gristmill bench` measures reading, and what the system allows."""

import json
import os

import pytest

from support.cli import run, write_array_record, write_tf_record

ROWS = [
    "pread in order",
    "read in order",
    "pread shuffled",
    "read shuffled",
    "DataLoader, 0 workers",
    "DataLoader, 1 worker",
]
RECORDS = [b"%d" % i * 100 for i in range(1000)]


@pytest.fixture(params=["array_record", "grouped", "tfrecord"])
def path(request, tmp_path):
    if request.param == "tfrecord":
        return write_tf_record(tmp_path / "x.tfrecord", RECORDS)
    options = "group_size:64" if request.param == "grouped" else "group_size:1"
    return write_array_record(tmp_path / "x.array_record", RECORDS, options)


@pytest.mark.claim("gristmill convert, inspect, bench, gristmill.beam")
@pytest.mark.multiprocess
def test_measures_every_way_to_read(path):
    done = run("bench", path, "--seconds", 0.02, "--workers", "0,1", "--json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["path"] == str(path)
    assert [row["name"] for row in found["rates"]] == ROWS
    limit = None
    for row in found["rates"]:
        assert row["records_per_s"] > 0
        if row["name"].startswith("pread"):
            limit = row["records_per_s"]
            assert row["of_pread"] is None
            continue
        assert row["of_pread"] == pytest.approx(row["records_per_s"] / limit)
        mean = row["bytes_per_s"] / row["records_per_s"]
        # Some records in a fixed time: near the mean of all.
        assert mean == pytest.approx(sum(map(len, RECORDS)) / len(RECORDS), rel=0.2)


def test_prints_a_table(path):
    done = run("bench", path, "--seconds", 0.01, "--workers", 0, "--batch-size", 10)
    lines = done.out.splitlines()
    assert lines[0].startswith(f"{path}: 1,000 records, ")
    assert lines[2].split() == ["records/s", "MB/s", "of", "pread"]
    assert [line[:21].rstrip() for line in lines[3:8]] == ROWS[:5]
    assert len({len(line.rstrip()) for line in lines[2:8]}) == 2  # Columns are aligned.
    assert lines[8] == ""
    assert lines[9].startswith("pread shuffled is a Python loop")


def test_files_without_random_access_are_refused(tmp_path):
    gzip = write_tf_record(tmp_path / "x.tfrecord.gz", RECORDS, "gzip")
    done = run("bench", gzip)
    assert done.status == 1
    assert f"Convert it with: gristmill convert {gzip} OUT" in done.err
    empty = write_array_record(tmp_path / "empty.array_record", [])
    done = run("bench", empty)
    assert done.err == (
        f"gristmill: {empty}: it has no records, so there is nothing to measure.\n"
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--seconds", "0"),
        ("--seconds", "long"),
        ("--workers", "0,x"),
        ("--batch-size", "0"),
    ],
)
def test_misuse_ends_with_two(option, value):
    done = run("bench", "FILE", option, value)
    assert done.status == 2
    assert f"argument {option}: {value!r} is not a" in done.err


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = run("bench", tmp_path / "pipe")
    assert done.err == f"gristmill: {tmp_path}/pipe: not a regular file.\n"
