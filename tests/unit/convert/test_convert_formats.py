"""`gristmill convert` reads each format, and writes each codec."""

import base64
import bz2
import gzip
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gristmill import _core
from gristmill._convert import examples
from support.cli import (
    names,
    read_array_record,
    run,
    shards,
    write_array_record,
    write_tf_record,
)
from support.conversions import features_of, sample


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


@pytest.mark.parametrize(
    "opened", [open, gzip.open, bz2.open, lzma.open, zstandard.open]
)
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


def test_lines_and_compressed_lines_are_records(tmp_path):
    text = b'{"a": 1}\r\n\n \n[2]\nlast'
    (tmp_path / "plain.txt").write_bytes(text)
    (tmp_path / "gzip.txt").write_bytes(
        gzip.compress(text[:4]) + gzip.compress(text[4:])
    )
    (tmp_path / "zstd.txt").write_bytes(pa.Codec("zstd").compress(text, asbytes=True))
    for name in "plain", "gzip", "zstd":
        path = tmp_path / f"{name}.txt"
        done = run("convert", path, tmp_path / name, "--from", "lines")
        assert done.status == 0, done.err
        found = read_array_record(tmp_path / f"{name}.array_record")
        assert found == [b'{"a": 1}', b"[2]", b"last"]


def test_truncated_zstd_is_named(tmp_path):
    path = tmp_path / "in.jsonl.zst"
    content = pa.Codec("zstd").compress(b'{"a": 1}\n' * 1000, asbytes=True)
    path.write_bytes(content[:-5])
    done = run("convert", path, tmp_path / "x")
    assert done.status == 1
    assert f"{path}: damaged compressed data: the file ends within a zstd" in done.err
