"""`gristmill convert` writes all requested files, or none."""

import base64
import contextlib
import fcntl
import gzip
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import _core
from gristmill._base import progress_bar
from gristmill._convert import conversion, examples, finding
from gristmill._convert import inputs as inputs_module
from support import extras
from support.cli import (
    names,
    read_array_record,
    run,
    shards,
    start,
    write_array_record,
    write_tf_record,
)
from support.places import TESTS
from support.tf_record_files import framed
from support.waiting import wait_for


def sample(count, seed=0, most=300):
    rng = np.random.default_rng(seed)
    return [rng.bytes(int(size)) for size in rng.integers(0, most, count)]


def flat(parts):
    return [record for part in parts for record in part]


def features_of(record):
    """Return the features of an Example, by protobuf."""
    message = extras.tensorflow("tensorflow.core.example.example_pb2").Example
    found = {}
    for name, feature in message.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        found[name] = (kind.removesuffix("_list"), list(getattr(feature, kind).value))
    return found


# Input formats


@pytest.mark.claim("Compressed TFRecord files can only be read in order, or converted.")
@pytest.mark.parametrize("compression", ["", "gzip", "zlib"])
def test_tf_record_files_keep_their_records(tmp_path, compression):
    records = [b"", *sample(500), bytes(200_000)]
    write_tf_record(tmp_path / "in.tfrecord", records, compression)
    done = run("convert", tmp_path / "in.tfrecord", tmp_path / "out")
    assert done.status == 0, done.err
    assert read_array_record(tmp_path / "out.array_record") == records
    assert "502 records of 1 input (" in done.out
    assert names(tmp_path) == [
        ".out.convert.jsonl",
        "in.tfrecord",
        "out.array_record",
    ]


@pytest.mark.parametrize(
    "option", ["none", "zstd", "zstd:-5", "zstd:19", "brotli:3", "snappy"]
)
@pytest.mark.parametrize("group_size", [1, 7])
def test_writes_every_codec_and_group_size(tmp_path, option, group_size):
    records = sample(30)
    write_array_record(tmp_path / "in.array_record", records, "group_size:5,brotli")
    done = run(
        *("convert", tmp_path / "in.array_record", tmp_path / "out"),
        *("--compression", option, "--group-size", group_size),
    )
    assert done.status == 0, done.err
    file = _core.RecordFile(str(tmp_path / "out.array_record"))
    assert file.group_size == group_size
    codec = "uncompressed" if option == "none" else option
    assert f",{codec}" in file.options
    assert read_array_record(tmp_path / "out.array_record") == records


LINES = [
    {"name": "é", "n": -1, "x": [0.5, 2], "inner": {"flag": True, "no": None}},
    {"name": "", "n": 2**63 - 1, "x": [], "inner": {}},
]


@pytest.mark.parametrize("opened", [open, gzip.open])
def test_json_lines_stay_as_they_are(tmp_path, opened):
    lines = [json.dumps(LINES[0]), "", '  {"spaces":   1}\r', "[1, 2]"]
    with opened(tmp_path / "in.jsonl", "wt", encoding="utf-8", newline="") as file:
        file.write("\n".join(lines))
    assert run("convert", tmp_path / "in.jsonl", tmp_path / "out").status == 0
    found = read_array_record(tmp_path / "out.array_record")
    assert found == [lines[0].encode(), b'{"spaces":   1}', b"[1, 2]"]


def test_json_lines_become_examples(tmp_path):
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, LINES)))
    done = run(
        "convert", tmp_path / "in.jsonl", tmp_path / "out", "--encode", "example"
    )
    assert done.status == 0, done.err
    found = [features_of(r) for r in read_array_record(tmp_path / "out.array_record")]
    assert found == [
        {
            "name": ("bytes", ["é".encode()]),
            "n": ("int64", [-1]),
            "x": ("float", [0.5, 2.0]),
            "inner/flag": ("int64", [1]),
        },
        {"name": ("bytes", [b""]), "n": ("int64", [2**63 - 1])},
    ]


TABLE = pa.table(
    {
        "i": pa.array([1, None, -3], pa.int32()),
        "f": pa.array([0.5, 1e300, -2.0], pa.float64()),
        "s": ["a", "", None],
        "b": pa.array([b"\xff", b"", b"x"], pa.large_binary()),
        "l": pa.array([[1, 2], [], None], pa.list_(pa.uint8())),
        "v": pa.array([[1.5, 2.5], [0, 1], [3.5, 4.5]], pa.list_(pa.float32(), 2)),
        "t": pa.array([["p"], ["q", "r"], []], pa.list_(pa.string())),
        "d": pa.array(["x", "y", "x"]).dictionary_encode(),
        "image": pa.array([{"bytes": b"B", "path": None}] * 2 + [None]),
        "when": pa.array([0, 1, None], pa.timestamp("ms")),
        "flag": [True, False, None],
    }
)


def test_parquet_rows_become_examples(tmp_path):
    pq.write_table(TABLE, tmp_path / "in.parquet", row_group_size=2)
    done = run("convert", tmp_path / "in.parquet", tmp_path / "out")
    assert done.status == 0, done.err
    found = [features_of(r) for r in read_array_record(tmp_path / "out.array_record")]
    assert found == [
        {
            "i": ("int64", [1]),
            "f": ("float", [0.5]),
            "s": ("bytes", [b"a"]),
            "b": ("bytes", [b"\xff"]),
            "l": ("int64", [1, 2]),
            "v": ("float", [1.5, 2.5]),
            "t": ("bytes", [b"p"]),
            "d": ("bytes", [b"x"]),
            "image/bytes": ("bytes", [b"B"]),
            "when": ("bytes", [b"1970-01-01 00:00:00.000"]),
            "flag": ("int64", [1]),
        },
        {
            "f": ("float", [float("inf")]),
            "s": ("bytes", [b""]),
            "b": ("bytes", [b""]),
            "l": ("int64", []),
            "v": ("float", [0.0, 1.0]),
            "t": ("bytes", [b"q", b"r"]),
            "d": ("bytes", [b"y"]),
            "image/bytes": ("bytes", [b"B"]),
            "when": ("bytes", [b"1970-01-01 00:00:00.001"]),
            "flag": ("int64", [0]),
        },
        {
            "i": ("int64", [-3]),
            "f": ("float", [-2.0]),
            "b": ("bytes", [b"x"]),
            "v": ("float", [3.5, 4.5]),
            "t": ("bytes", []),
            "d": ("bytes", [b"x"]),
        },
    ]


def test_parquet_rows_become_json(tmp_path):
    nested = pa.array([[[1, 2], [3]], None, [[]]])
    table = TABLE.append_column("nested", nested)
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=2)
    done = run("convert", tmp_path / "in.parquet", tmp_path / "out", "--encode", "json")
    assert done.status == 0, done.err
    found = [json.loads(r) for r in read_array_record(tmp_path / "out.array_record")]
    expected = table.to_pylist()
    for row in expected:
        row["b"] = base64.b64encode(row["b"]).decode()
        row["when"] = row["when"] and str(row["when"])
        if row["image"]:
            row["image"]["bytes"] = "Qg=="
    assert found == expected


def test_parquet_shards_ignore_row_group_bounds(tmp_path):
    table = pa.table({"i": range(5000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=700)
    pq.write_table(table.slice(0, 11), tmp_path / "b.parquet")
    done = run(
        *("convert", tmp_path / "a.parquet", tmp_path / "b.parquet"),
        *(tmp_path / "out", "--shards", 9, "--processes", 1),
    )
    assert done.status == 0, done.err
    found = read_array_record(*shards(tmp_path, "out", 9))
    values = [features_of(record)["i"][1][0] for record in found]
    assert values == [*range(5000), *range(11)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([[[1]]]), "column 'x' must have numbers"),
        (pa.array([[1, None]]), "column 'x' has a list with a null in it"),
        (
            pa.array([2**64 - 1], pa.uint64()),
            "column 'x': Integer value 18446744073709551615",
        ),
    ],
)
def test_unsupported_columns_are_named(tmp_path, column, expected):
    pq.write_table(pa.table({"x": column}), tmp_path / "in.parquet")
    done = run("convert", tmp_path / "in.parquet", tmp_path / "out")
    assert done.status == 1
    assert done.err.startswith(f"gristmill: {tmp_path}/in.parquet: {expected}")
    assert "--encode json" in done.err


@pytest.fixture
def photos(tmp_path):
    """Write a tree of files in the layout that ImageFolder reads."""
    files = {
        "photos/dog/2.jpg": b"two",
        "photos/cat/deep/1.jpg": b"one",
        "photos/cat/3.jpg": b"",
        "photos/readme": b"top",
    }
    for name, content in {**files, "photos/.hidden/x": b"", "photos/.x": b""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path / "photos"


def test_files_of_a_folder_become_records(tmp_path, photos):
    done = run("convert", photos, tmp_path / "out")
    assert done.status == 0, done.err
    found = read_array_record(tmp_path / "out.array_record")
    assert found == [b"", b"one", b"two", b"top"]


def test_files_of_a_folder_are_recorded_with_their_names(tmp_path, photos):
    done = run(
        *("convert", photos, tmp_path / "out", "--with-names", "--shards", 2),
    )
    assert done.status == 0, done.err
    found = map(features_of, read_array_record(*shards(tmp_path, "out", 2)))
    assert [(f["name"][1][0], f["label"], f["bytes"]) for f in found] == [
        (b"cat/3.jpg", ("int64", [0]), ("bytes", [b""])),
        (b"cat/deep/1.jpg", ("int64", [0]), ("bytes", [b"one"])),
        (b"dog/2.jpg", ("int64", [1]), ("bytes", [b"two"])),
        (b"readme", ("int64", [-1]), ("bytes", [b"top"])),
    ]


def test_folder_of_one_format_is_expanded(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_tf_record(folder / "b.tfrecord", [b"2"])
    write_tf_record(folder / "a.tfrecord-00000-of-00001", [b"1"])
    assert run("convert", folder, tmp_path / "out").status == 0
    assert read_array_record(tmp_path / "out.array_record") == [b"1", b"2"]
    (folder / "c.parquet").write_bytes(b"")
    done = run("convert", folder, tmp_path / "out2")
    assert done.status == 1
    assert "several formats. Pass --from files" in done.err
    assert run("convert", folder, tmp_path / "all", "--from", "files").status == 0
    assert len(read_array_record(tmp_path / "all.array_record")) == 3


def test_formats_are_detected_by_content(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "p")
    write_array_record(tmp_path / "a", [b"array record"])
    write_tf_record(tmp_path / "t", [b"tf record"])
    write_tf_record(tmp_path / "z", [b"compressed"], "zlib")
    (tmp_path / "j").write_text('\n {"json": 1}\n')
    inputs = [tmp_path / name for name in "patzj"]
    done = run("convert", *inputs, tmp_path / "out")
    assert done.status == 0, done.err
    found = read_array_record(tmp_path / "out.array_record")
    assert features_of(found[0]) == {"a": ("int64", [1])}
    assert found[1:] == [b"array record", b"tf record", b"compressed", b'{"json": 1}']
    (tmp_path / "unknown").write_text("what is this")
    done = run("convert", tmp_path / "unknown", tmp_path / "out2")
    assert done.status == 1
    assert "neither the name nor the first bytes imply the format" in done.err


int64s = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(int64s | st.integers(-2, 300), max_size=40),
    st.lists(st.floats(width=32, allow_nan=False), max_size=20),
    st.lists(st.binary(max_size=200), max_size=5),
    st.text(max_size=5),
)
def test_examples_match_protobuf(integers, floats, texts, name):
    record = examples.example(
        [
            *examples.int64_features("i" + name, integers),
            *examples.float_features("f" + name, floats),
            *examples.bytes_features("b" + name, texts),
        ]
    )
    assert features_of(record) == {
        "i" + name: ("int64", integers),
        "f" + name: ("float", floats),
        "b" + name: ("bytes", texts),
    }


# Shards


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


# Interruption


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Return the arguments of a conversion of one or two seconds, and its output."""
    folder = tmp_path_factory.mktemp("slow")
    paths = []
    for number in range(3):
        records = [r * 40 for r in sample(200, number)]
        compression = "gzip" if number == 1 else ""
        path = folder / f"{number}.tfrecord"
        paths.append(write_tf_record(path, records, compression))
    options = ("--shards", 14, "--compression", "brotli:11")
    done = run("convert", *paths, folder / "x", *options, "--processes", 2)
    assert done.status == 0, done.err
    return paths, options, [p.read_bytes() for p in shards(folder, "x", 14)]


@pytest.fixture
def long(request, tmp_path, slow):
    """Return a conversion to `out` by two processes or one, and its expected output."""
    paths, options, whole = slow
    (tmp_path / "out").mkdir()
    arguments = ("convert", *paths, tmp_path / "out" / "x", *options)
    return (*arguments, "--processes", request.param), whole


def lines_of(journal):
    with contextlib.suppress(FileNotFoundError):
        return journal.read_bytes().count(b"\n")
    return 0


def wait_for_lines(process, journal, count):
    """Wait until a journal has `count` lines, or the process has ended."""
    wait_for(lambda: lines_of(journal) >= count or process.poll() is not None)


def has_processes(group):
    """Return whether a process of a group runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("long", "kills"),
    [(2, (1, 3, 6, 12)), (1, (2, 8))],  # Killed at these line counts of the journal.
    indirect=["long"],
    ids=["two processes", "one process"],
)
def test_killed_conversion_resumes_to_same_output(tmp_path, long, kills):
    arguments, whole = long
    out = tmp_path / "out"
    journal = out / ".x.convert.jsonl"
    draw = random.Random(0)
    finished = 0
    for lines in kills:
        process = start(*arguments)
        wait_for_lines(process, journal, lines)
        with contextlib.suppress(Exception):
            process.wait(draw.random() / 20)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        # No file has its final name before all are finished, and no progress is lost.
        assert not list(out.glob("x*"))
        assert lines_of(journal) >= finished
        finished = lines_of(journal)
    done = run(*arguments)
    assert done.status == 0, done.err
    assert f"{finished - 2} files already finished, the others written" in done.out
    assert [p.read_bytes() for p in shards(out, "x", 14)] == whole
    assert len(names(out)) == 15
    again = run(*arguments)
    assert (again.status, "already finished." in again.out) == (0, True)


@pytest.mark.multiprocess
@pytest.mark.parametrize("long", [2, 1], indirect=True)
def test_ctrl_c_ends_conversion_without_traceback(tmp_path, long):
    arguments, whole = long
    process = start(*arguments, start_new_session=True)
    wait_for_lines(process, tmp_path / "out" / ".x.convert.jsonl", 4)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, err) == (
        "",
        "gristmill: interrupted. Run the same command again to resume.\n",
    )
    wait_for(lambda: not has_processes(process.pid))
    assert run(*arguments).status == 0
    found = [p.read_bytes() for p in shards(tmp_path / "out", "x", 14)]
    assert found == whole


def ignore_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.multiprocess
@pytest.mark.parametrize("long", [2, 1], indirect=True)
def test_background_conversion_ignores_ctrl_c(tmp_path, long):
    arguments, whole = long
    process = start(*arguments, start_new_session=True, preexec_fn=ignore_ctrl_c)
    wait_for_lines(process, tmp_path / "out" / ".x.convert.jsonl", 4)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    found = [p.read_bytes() for p in shards(tmp_path / "out", "x", 14)]
    assert found == whole


def test_test_suite_restores_sigint_handler():
    program = "import conftest, signal; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=TESTS,
        preexec_fn=ignore_ctrl_c,
    )
    assert done.stdout == "default_int_handler\n"


def interrupted(tmp_path):
    """Return the arguments of a conversion that stopped after one of two shards."""
    paths = [
        write_tf_record(tmp_path / "a.tfrecord", [b"1", b"2"]),
        write_tf_record(tmp_path / "b.tfrecord", [b"3", b"4"]),
    ]
    arguments = ("convert", *paths, tmp_path / "x", "--shards", 2, "--processes", 1)
    content = paths[1].read_bytes()
    stamp = paths[1].stat()
    paths[1].write_bytes(content[:-1] + b"\0")  # The last record is damaged.
    os.utime(paths[1], ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert run(*arguments).status == 1
    paths[1].write_bytes(content)
    os.utime(paths[1], ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert lines_of(tmp_path / ".x.convert.jsonl") == 3
    assert names(tmp_path)[:2] == [
        ".x-00000-of-00002.array_record.part",
        ".x.convert.jsonl",
    ]
    return arguments


def test_resumes_after_problem_is_fixed(tmp_path):
    arguments = interrupted(tmp_path)
    done = run(*arguments)
    assert "1 file already finished, the others written" in done.out
    assert read_array_record(*shards(tmp_path, "x", 2)) == [b"1", b"2", b"3", b"4"]


def test_truncated_journal_loses_only_last_line(tmp_path):
    arguments = interrupted(tmp_path)
    journal = tmp_path / ".x.convert.jsonl"
    with open(journal, "ab") as file:
        file.write(b'{"shard": 1, "reco')
    done = run(*arguments)
    assert "1 file already finished, the others written" in done.out
    assert read_array_record(*shards(tmp_path, "x", 2)) == [b"1", b"2", b"3", b"4"]
    assert lines_of(journal) == 4


def test_lost_shards_are_rewritten(tmp_path):
    arguments = interrupted(tmp_path)
    (tmp_path / ".x-00000-of-00002.array_record.part").unlink()
    assert run(*arguments).status == 0
    shards(tmp_path, "x", 2)[1].unlink()
    done = run(*arguments)
    assert "1 file already finished, the others written" in done.out
    assert read_array_record(*shards(tmp_path, "x", 2)) == [b"1", b"2", b"3", b"4"]


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


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--group-size", 2), "writer_options was 'group_size:1,zstd:3', now it is"),
        (("--shards", 3), "outputs was x-00000-of-00002.array_record and 1 more, now"),
        (("--shards", "inputs"), "ranges was 'even', now it is 'inputs'"),
    ],
)
def test_other_options_need_restart(tmp_path, option, expected):
    arguments = interrupted(tmp_path)
    done = run(*arguments, *option)
    assert done.status == 1
    assert done.err.startswith(f"gristmill: {tmp_path}/.x.convert.jsonl: this output")
    assert expected in done.err
    done = run(*arguments, *option, "--restart")
    assert done.status == 0, done.err
    count = option[1] if option[0] == "--shards" and option[1] == 3 else 2
    found = read_array_record(*shards(tmp_path, "x", count))
    assert found == [b"1", b"2", b"3", b"4"]
    assert len(names(tmp_path)) == 2 + 1 + count


def test_other_inputs_need_restart(tmp_path):
    arguments = interrupted(tmp_path)
    path = write_tf_record(tmp_path / "b.tfrecord", [b"other", b"records"])
    done = run(*arguments)
    assert done.status == 1
    assert f"input {path} has changed: bytes was 34, now it is 44." in done.err
    done = run(*arguments[:2], *arguments[3:])
    assert "was begun with 2 inputs, now there are 1" in done.err
    assert run(*arguments, "--restart").status == 0
    found = read_array_record(*shards(tmp_path, "x", 2))
    assert found == [b"1", b"2", b"other", b"records"]


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


def test_concurrent_conversions_are_rejected(tmp_path):
    arguments = interrupted(tmp_path)
    with open(tmp_path / ".x.convert.jsonl", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = run(*arguments)
    assert done.status == 1
    assert "another gristmill convert is writing this output" in done.err
    assert run(*arguments).status == 0


# Foreign journals


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


# Problems


def left(folder):
    """Return the names in a folder that look like results."""
    return [name for name in names(folder) if name.startswith("x")]


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


def limit_files(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.multiprocess
def test_full_disk_leaves_no_partial_file(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", sample(2000, most=1000))
    arguments = ("convert", path, tmp_path / "x", "--compression", "none")
    process = start(*arguments, preexec_fn=partial(limit_files, 300_000))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "File too large" in err
    assert f"{tmp_path}/.x.array_record.part" in err
    assert names(tmp_path) == [".x.convert.jsonl", "in.tfrecord"]
    assert run(*arguments).status == 0
    assert len(read_array_record(tmp_path / "x.array_record")) == 2000


@pytest.mark.multiprocess
@pytest.mark.parametrize("long", [2], indirect=True)
def test_killed_worker_is_an_error(tmp_path, long):
    arguments, _ = long
    process = start(*arguments)
    wait_for_lines(process, tmp_path / "out" / ".x.convert.jsonl", 3)
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    with open(children) as file:
        worker = int(file.read().split()[-1])
    os.kill(worker, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("gristmill: a worker process ended by signal SIGKILL.")


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


def test_output_inside_input_folder_is_rejected(tmp_path, photos):
    done = run("convert", photos, photos / "out" / "x")
    assert done.status == 1
    assert f"OUT would be in {photos}, whose files are the input" in done.err
    assert names(photos) == [".hidden", ".x", "cat", "dog", "readme"]


def test_output_inside_expanded_folder_is_rejected(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_tf_record(folder / "a.tfrecord", [b"1"])
    (tmp_path / "link").symlink_to(folder)
    for source, out in [
        (folder, folder / "out"),
        (folder, folder / "deep" / "out"),
        (tmp_path / "link", folder / "out"),
        (folder, tmp_path / "link" / "out"),
    ]:
        # The second attempt fails too.
        for _ in range(2):
            done = run("convert", source, out)
            assert done.status == 1
            assert f"OUT would be in {source}, whose files are the input" in done.err
            assert names(folder) == ["a.tfrecord"]
    # Allowed: a folder whose name only starts the same, and one that is not an input.
    for out in (tmp_path / "in2" / "out", folder / "out"):
        for _ in range(2):
            assert run("convert", folder / "a.tfrecord", out).status == 0


def test_link_loops_are_not_followed(tmp_path):
    folder = tmp_path / "in"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "x").write_bytes(b"x")
    (folder / "a" / "b" / "top").symlink_to(folder)
    (folder / "a" / "self").symlink_to(folder / "a")
    # Not a loop, so these files are read twice.
    (folder / "twin").symlink_to(folder / "a" / "b")
    done = run("convert", folder, tmp_path / "out", "--with-names")
    assert (done.status, done.err) == (0, "")
    found = map(features_of, read_array_record(tmp_path / "out.array_record"))
    assert [f["name"][1][0] for f in found] == [b"a/b/x", b"twin/x"]


@pytest.fixture(params=["pipe", "socket", "device"])
def no_file(request, tmp_path):
    """Return the path of an endless non-regular file, in its own folder."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "x"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("form", [None, *finding.FORMATS])
def test_only_regular_files_are_read(tmp_path, no_file, form):
    options = ("--from", form) if form else ()
    done = run("convert", no_file, tmp_path / "x", *options)
    assert (done.status, done.err) == (
        1,
        f"gristmill: {no_file}: not a regular file.\n",
    )
    options += ("--follow-links",)
    for other in ("a.tfrecord", "b", "c.jsonl"):
        done = run("convert", tmp_path / "in", tmp_path / "x", *options)
        assert (done.status, done.err) == (
            *(1, f"gristmill: {no_file}: not a regular file.\n"),
        )
        (tmp_path / "in" / other).write_bytes(b"")
        no_file = no_file.rename(no_file.with_name("0.tfrecord"))
    assert left(tmp_path) == []


def test_links_within_a_folder_are_followed(tmp_path):
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_bytes(b"a")
    (folder / "b").symlink_to("deep/a")
    (folder / "c").symlink_to(folder / "deep" / "a")
    (folder / "d").symlink_to("../in/deep")
    (tmp_path / "link").symlink_to(folder)
    for source in (folder, tmp_path / "link"):
        out = tmp_path / f"{source.name}.array_record"
        assert run("convert", source, out).status == 0
        assert read_array_record(out) == [b"a"] * 4


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("to", ["file", "folder", "parent", "twin"])
def test_links_out_of_folder_need_follow_links(tmp_path, to, deep):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("elsewhere", "in2"):  # The name "in2" only starts like "in".
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"secret")
    target = {
        "file": tmp_path / "elsewhere" / "x",
        "folder": tmp_path / "elsewhere",
        "parent": tmp_path,
        "twin": tmp_path / "in2" / "x",
    }[to]
    link = tmp_path / "in" / ("deep/link" if deep else "link")
    link.symlink_to(target)
    out = tmp_path / "made" / "x.array_record"
    done = run("convert", tmp_path / "in", out)
    assert done.status == 1
    assert done.err == (
        f"gristmill: {link}: a link to {target}, out of the folder. Pass"
        " --follow-links to read what such links lead to.\n"
    )
    assert not out.exists()
    done = run("convert", tmp_path / "in", out, "--follow-links")
    # The parent folder contains the output of the conversion itself.
    if to != "parent":
        assert (done.status, read_array_record(out)) == (0, [b"secret"])


def test_hidden_links_out_of_folder_are_ignored(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ".link").symlink_to("/etc/passwd")
    (tmp_path / "in" / "a").write_bytes(b"a")
    assert run("convert", tmp_path / "in", tmp_path / "x").status == 0
    assert read_array_record(tmp_path / "x.array_record") == [b"a"]


@pytest.mark.parametrize("target", ["nowhere", "/nowhere/at all", "link"])
def test_broken_links_are_an_error(tmp_path, target):
    (tmp_path / "in").mkdir()
    link = tmp_path / "in" / "link"
    link.symlink_to(target)
    expected = (1, "", f"gristmill: {link}: a broken link, to {target}.\n")
    for options in ((), ("--follow-links",)):
        assert run("convert", tmp_path / "in", tmp_path / "x", *options) == expected
    assert run("convert", link, tmp_path / "x") == expected
    assert run("inspect", link) == expected
    assert run("inspect", tmp_path / "in") == expected


def test_input_as_output_is_rejected(tmp_path):
    path = write_array_record(tmp_path / "x.array_record", [b"kept"])
    done = run("convert", path, tmp_path / "x", "--restart")
    assert done.status == 1
    assert "is both an input and an output" in done.err
    assert read_array_record(path) == [b"kept"]


# Output


def test_progress_is_shown_on_one_line(monkeypatch):
    import io

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


def test_quiet_prints_nothing(tmp_path):
    path = write_tf_record(tmp_path / "in.tfrecord", [b"x"])
    assert run("convert", path, tmp_path / "x", "--quiet") == (0, "", "")


def test_journal_checksums_are_reproducible(tmp_path):
    import hashlib

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
