"""`gristmill bench` measures reading, and the limit that the system sets."""

import io
import json
import os
import struct
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill._cli.opening import open_files
from gristmill._cli.terminal import format_ratio
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
        # A fixed time covers only some records, so their mean is near the mean of all.
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


def measured(path, *options):
    """Return the rows of a short measurement by name."""
    done = run("bench", path, "--seconds", 0.01, "--workers", 0, "--json", *options)
    assert (done.status, done.err) == (0, "")
    rows = {row.pop("name"): row for row in json.loads(done.out)["rates"]}
    assert all(row["records_per_s"] > 0 for row in rows.values())
    return rows


# Rows of formats whose record offsets are unknown.
UNPLACED = [name for name in ROWS[:5] if name != "pread shuffled"]


def write_parquet(folder):
    for number in range(2):
        table = pa.table({"x": range(100), "y": ["text"] * 100})
        pq.write_table(table, folder / f"{number}.parquet")


def write_tars(folder):
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as file:
            for i in range(50):
                info = tarfile.TarInfo(f"{i}.txt")
                info.size = 3
                file.addfile(info, io.BytesIO(b"abc"))


def write_bag(folder):
    ends = struct.pack("<50Q", *range(10, 510, 10))
    (folder / "x.bag").write_bytes(bytes(500) + ends)


def write_images(folder):
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for number in range(20):
            (folder / name / f"{number}.jpg").write_bytes(bytes(1000))


@pytest.mark.parametrize("write", [write_parquet, write_tars, write_bag, write_images])
def test_folders_of_all_sources_are_measured(tmp_path, write):
    write(tmp_path)
    rows = measured(tmp_path)
    assert [*rows] == UNPLACED
    assert rows["read in order"]["of_pread"] > 0
    # Nothing reads the same records in the same order without Gristmill.
    assert rows["read shuffled"]["of_pread"] is None


@pytest.mark.parametrize("kind", ["array_record", "tfrecord"])
def test_shards_are_measured_as_one(tmp_path, kind):
    for number in range(3):
        path = tmp_path / f"{number}.{kind}"
        if kind == "tfrecord":
            write_tf_record(path, RECORDS)
        else:
            write_array_record(path, RECORDS, "group_size:7")
    assert [*measured(tmp_path)] == ROWS[:5]
    done = run("bench", tmp_path, "--seconds", 0.01, "--workers", 0)
    assert done.out.startswith(f"{tmp_path}: 3 files, 3,000 records, ")


@pytest.mark.parametrize("kind", ["array_record", "tfrecord"])
def test_places_are_offsets_of_records(tmp_path, kind):
    """The bytes at the offsets of uncompressed records are the records."""
    shards = [RECORDS[:300], RECORDS[300:]]
    for number, records in enumerate(shards):
        path = tmp_path / f"{number}.{kind}"
        if kind == "tfrecord":
            write_tf_record(path, records)
        else:
            write_array_record(path, records, "group_size:1,uncompressed")
    opened = open_files([str(tmp_path)])
    numbers = np.array([999, 0, 299, 300, 5])
    for number, part, begin, end in zip(
        numbers, *opened.byte_ranges(numbers).tolist(), strict=True
    ):
        with open(opened.files[part], "rb") as file:
            assert RECORDS[number] in file.read()[begin:end]


def test_streams_are_measured_in_order_only(tmp_path):
    gzip = write_tf_record(tmp_path / "x.tfrecord.gz", RECORDS, "gzip")
    assert [*measured(gzip)] == ROWS[:2]
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n' * 100)
    assert [*measured(tmp_path / "x.jsonl")] == ROWS[:2]
    done = run("bench", gzip, "--seconds", 0.01)
    assert f"convert: gristmill convert {gzip} OUT" in done.out


def test_mixed_formats_are_rejected(tmp_path):
    write_tf_record(tmp_path / "x.tfrecord", RECORDS)
    write_array_record(tmp_path / "x.array_record", RECORDS)
    done = run("bench", tmp_path)
    assert done.status == 1
    assert "several formats: array_record, tfrecord." in done.err
    (tmp_path / "empty").mkdir()
    done = run("bench", tmp_path / "empty")
    assert done.err == f"gristmill: {tmp_path}/empty: this folder contains no files.\n"


@pytest.mark.parametrize(
    ("part", "text"),
    [(2.0, "2.00"), (0.104, "0.10"), (0.0312, "0.031"), (0.000012, "0.000012")],
)
def test_small_share_keeps_two_digits(part, text):
    assert format_ratio(part) == text


def test_files_without_records_are_rejected(tmp_path):
    empty = write_array_record(tmp_path / "empty.array_record", [])
    done = run("bench", empty)
    assert done.err == (
        f"gristmill: {empty}: expected at least one record, found none.\n"
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
def test_misuse_exits_with_status_2(option, value):
    done = run("bench", "FILE", option, value)
    assert done.status == 2
    assert f"argument {option}: {value!r} is not a" in done.err


def test_pipe_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = run("bench", tmp_path / "pipe")
    assert done.err == f"gristmill: {tmp_path}/pipe: not a regular file.\n"
