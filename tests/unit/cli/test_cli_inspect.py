"""`gristmill inspect` describes files and lists every damaged record."""

import json
import os
import re
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import _core
from gristmill._cli.records import describe_record
from support import example_samples
from support.cli import COMMAND, flip, run, start, write_array_record, write_tf_record
from support.tf_record_files import framed


def inspected(*arguments):
    """Return the --json output for each file."""
    done = run("inspect", "--json", *arguments)
    assert done.err == ""
    return done.status, [json.loads(line) for line in done.out.splitlines()]


def test_array_record_file_is_described(tmp_path):
    records = [b"one", b"", b"three" * 10, b'{"a": [1]}']
    path = write_array_record(tmp_path / "x", records, "group_size:3,brotli:4")
    done = run("inspect", path, "--verify", "--head", 4)
    assert (done.status, done.err) == (0, "")
    assert (
        done.out
        == f"""\
{path}
  format    ArrayRecord
  size      128.0 KiB
  records   4
  chunks    2 of 3 records (the last may have fewer)
  codec     brotli:4
  options   {_core.RecordFile(str(path)).options}
  verified  every record is whole

  record sizes: least 0 B, median 6 B, mean 16 B, most 50 B
    < 1 B   1  ########################################
    < 2 B   0
    < 4 B   1  ########################################
    < 8 B   0
    < 16 B  1  ########################################
    < 32 B  0
    < 64 B  1  ########################################

  first 4 records
    0  text     'one'
    1  bytes    empty
    2  text     'threethreethreethreethreethreethreethreethreethree'
    3  json     {{"a": [1]}}
"""
    )


@pytest.mark.parametrize("codec", ["uncompressed", "zstd:7", "brotli:2", "snappy"])
@pytest.mark.parametrize("group_size", [1, 10])
def test_codec_chunks_and_sizes_are_shown(tmp_path, codec, group_size):
    sizes = np.random.default_rng(0).integers(0, 5000, 95)
    records = [bytes(int(size)) for size in sizes]
    options = f"group_size:{group_size},{codec}"
    path = write_array_record(tmp_path / "x", records, options)
    status, (found,) = inspected(path, "--head", 0)
    assert status == 0
    assert found["format"] == "ArrayRecord"
    assert found["records"] == 95
    assert found["file_bytes"] == os.path.getsize(path)
    assert (found["chunks"], found["group_size"]) == (-(-95 // group_size), group_size)
    assert found["details"]["codec"] == codec.replace("uncompressed", "none")
    assert found["head"] == []
    told = found["sizes"]
    assert (told["counted"], told["exact"]) == (95, True)
    assert told["total"] == sizes.sum()
    assert (told["least"], told["most"]) == (sizes.min(), sizes.max())
    assert told["mean"] == pytest.approx(sizes.mean())
    assert told["median"] == int(np.median(sizes))
    lower = 0
    for limit, number in told["histogram"]:
        assert number == np.sum((lower <= sizes) & (sizes < limit))
        lower = limit
    assert sum(number for _, number in told["histogram"]) == 95


def test_large_groups_are_sampled(tmp_path):
    path = write_array_record(tmp_path / "x", [b"abc"] * 50_000, "group_size:100")
    _, (found,) = inspected(path)
    assert (found["sizes"]["counted"], found["sizes"]["exact"]) == (20_000, False)
    assert "record sizes, of 20,000 sampled: least 3 B" in run("inspect", path).out


@pytest.mark.parametrize("compression", ["", "gzip", "zlib"])
def test_tf_record_file_is_described(tmp_path, compression):
    records = [b"first", b"x" * 1000, b""]
    path = write_tf_record(tmp_path / "x.tfrecord", records, compression)
    status, (found,) = inspected(path, "--verify")
    assert status == 0
    assert (found["format"], found["records"]) == ("TFRecord", 3)
    assert found["details"] == {"codec": compression or "none"}
    assert found["sizes"]["total"] == 1005
    assert [each["text"] for each in found["head"]] == [
        "'first'",
        f"{'x' * 1000!r}",
        "empty",
    ]
    assert os.listdir(tmp_path) == ["x.tfrecord"]  # No index file remains.


def test_parquet_and_json_lines_are_described(tmp_path):
    table = pa.table({"a": range(10), "b": ["x"] * 10})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=4, compression="gzip")
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n\n[2]\n')
    status, (parquet, lines) = inspected(
        tmp_path / "x.parquet", tmp_path / "x.jsonl", "--verify"
    )
    assert status == 0
    assert (parquet["format"], parquet["records"], parquet["chunks"]) == (
        "Parquet",
        10,
        3,
    )
    assert parquet["details"] == {"codec": "gzip", "columns": "a: int64, b: string"}
    assert parquet["head"][1]["text"] == '{"a":1,"b":"x"}'
    assert (lines["format"], lines["records"]) == ("JSON lines", 2)
    assert [each["kind"] for each in lines["head"]] == ["json", "json"]


# Folders


def write_shards(folder):
    """Write three shards of ten records, and two text files that are not shards."""
    for number in range(3):
        records = [b"x" * (10 * number + i) for i in range(10)]
        write_array_record(folder / f"train-{number}.array_record", records)
    (folder / "dataset_info.json").write_text('{"name":\n "x"}')
    (folder / "README").write_text("text")


def test_folder_of_shards_has_one_summary(tmp_path):
    write_shards(tmp_path)
    status, (found,) = inspected(tmp_path)
    assert status == 0
    assert (found["path"], found["format"]) == (str(tmp_path), "ArrayRecord")
    assert (found["files"], found["other_files"], found["records"]) == (3, 2, 30)
    assert (found["chunks"], found["group_size"]) == (30, 1)
    assert found["file_bytes"] == sum(
        path.stat().st_size for path in tmp_path.glob("*.array_record")
    )
    assert len(found["head"]) == 3
    sizes = found["sizes"]
    assert (sizes["counted"], sizes["exact"], sizes["total"]) == (30, True, 435)
    assert (sizes["least"], sizes["median"], sizes["most"]) == (0, None, 29)
    assert sizes["mean"] == 14.5
    assert sizes["histogram"] == [[1, 1], [2, 1], [4, 2], [8, 4], [16, 8], [32, 14]]
    text = run("inspect", tmp_path).out
    assert text.count("format") == 1
    assert "  files    3 (and 2 others)\n" in text
    assert "  records  30\n" in text


def test_folder_of_one_format_has_one_schema(tmp_path):
    for number, name in enumerate("aab"):
        table = pa.table({name: [1, 2]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    _, (found,) = inspected(tmp_path)
    assert (found["files"], found["records"]) == (3, 6)
    assert found["details"]["columns"] == "2 different: a: int64; b: int64"
    (tmp_path / "2.parquet").unlink()
    _, (found,) = inspected(tmp_path)
    assert found["details"]["columns"] == "a: int64"


def test_folder_of_mixed_formats_has_one_summary_each(tmp_path):
    write_shards(tmp_path)
    write_tf_record(tmp_path / "x.tfrecord", [b"abc"])
    _, found = inspected(tmp_path)
    assert [(each["format"], each["records"]) for each in found] == [
        ("ArrayRecord", 30),
        ("TFRecord", 1),
    ]


def test_folder_of_images_is_counted(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"\xff\xd8\xff" + bytes(61))
    _, (found,) = inspected(tmp_path)
    assert (found["format"], found["records"]) == ("files, each a record", 2)
    assert found["details"] == {"folders": "2 different: cat; dog"}
    assert found["sizes"]["mean"] == 64
    assert found["head"][0]["text"] == "JPEG image, 64 B"


def test_damaged_shard_in_folder_is_named(tmp_path):
    write_shards(tmp_path)
    os.truncate(tmp_path / "train-1.array_record", 100)
    done = run("inspect", tmp_path)
    assert done.status == 1
    assert f"{tmp_path}/train-1.array_record" in done.err
    assert "  files    2 (and 2 others)\n" in done.out


def test_tar_and_bagz_files_are_counted(tmp_path):
    (tmp_path / "0.txt").write_text("abc")
    with tarfile.open(tmp_path / "x.tar", "w") as file:
        file.add(tmp_path / "0.txt", "0.txt")
    os.rename(tmp_path / "x.tar", tmp_path / "unnamed")
    (tmp_path / "x.bag").write_bytes(b"onetwo" + struct.pack("<QQ", 3, 6))
    _, found = inspected(tmp_path / "unnamed", tmp_path / "x.bag", "--verify")
    assert [(each["format"], each["records"]) for each in found] == [
        ("tar", 1),
        ("Bagz", 2),
    ]


# Damage


def damaged(path, *options):
    """Return (first record, records) of each place that --verify lists."""
    status, (found,) = inspected(path, "--verify", *options)
    assert status == (1 if found["damaged"] else 0)
    assert found["verified"]
    for each in found["damaged"]:
        assert each["text"].startswith(f"{path}: record {each['first']}")
    return [(each["first"], each["records"]) for each in found["damaged"]]


def test_lists_every_damaged_record(tmp_path):
    rng = np.random.default_rng(0)
    path = write_array_record(tmp_path / "x", [rng.bytes(9000) for _ in range(2000)])
    file = _core.RecordFile(str(path))
    bad = sorted({0, 1, 700, 701, 1999, *rng.integers(0, 2000, 20).tolist()})
    for record in bad:
        begin, end, _, _ = file.chunk(record)
        flip(path, int(rng.integers(begin + 24, end)))
    assert damaged(path) == [(record, 1) for record in bad]
    done = run("inspect", path, "--verify")
    assert done.status == 1
    assert (
        f"  verified  {len(bad)} of 2,000 records damaged, listed below\n" in done.out
    )
    assert f"\n  damaged: {len(bad)} places\n" in done.out
    begin = file.chunk(700)[0]
    assert f"\n    {path}: record 700: chunk at offset {begin}: " in done.out


def test_lists_damaged_chunks_once(tmp_path):
    rng = np.random.default_rng(0)
    records = [rng.bytes(20_000) for _ in range(1050)]
    path = write_array_record(tmp_path / "x", records, "group_size:500,uncompressed")
    file = _core.RecordFile(str(path))
    for chunk in 0, 2:
        flip(path, sum(file.chunk(chunk)[:2]) // 2)
    assert damaged(path) == [(0, 500), (1000, 50)]


def test_lists_damaged_tf_records(tmp_path):
    records = [bytes([i]) * 100 for i in range(50)]
    path = write_tf_record(tmp_path / "x.tfrecord", records)
    size = len(framed(records[0]))
    for record in 3, 49:
        flip(path, size * record + 60)
    assert damaged(path) == [(3, 1), (49, 1)]
    done = run("inspect", path, "--head", 4)  # --head happens to read the bad record.
    assert done.status == 1
    assert f"{path}: record 3" in done.err


def test_damaged_stream_reports_last_good_record(tmp_path):
    records = [np.random.default_rng(i).bytes(100) for i in range(500)]
    path = write_tf_record(tmp_path / "x.tfrecord", records, "gzip")
    path.write_bytes(path.read_bytes()[:-2000])
    status, (found,) = inspected(path, "--verify")
    assert status == 1
    assert 400 < found["records"] < 500
    (damage,) = found["damaged"]
    assert damage["first"] == found["records"]
    assert damage["text"].endswith("Nothing after it was read.")


@pytest.mark.parametrize("options", [(), ("--from", "jsonl"), ("--verify",)])
def test_pipes_do_not_hide_files(tmp_path, options):
    pipe = tmp_path / "a.jsonl"
    os.mkfifo(pipe)
    (tmp_path / "b.jsonl").write_text("{}")
    done = run("inspect", tmp_path, *options)
    assert done.status == 1
    assert done.err == f"gristmill: {pipe}: not a regular file.\n"
    assert re.search(r"\n  files +1\n", done.out)
    done = run("inspect", pipe, "/dev/zero", *options)
    assert done.err.count(": not a regular file.\n") == 2


def test_unreadable_files_do_not_hide_others(tmp_path):
    good = write_array_record(tmp_path / "good", [b"x"])
    bad = write_array_record(tmp_path / "bad.array_record", [b"x"])
    os.truncate(bad, 100)
    done = run("inspect", bad, good)
    assert done.status == 1
    assert done.err.startswith(f"gristmill: {bad}: ")
    assert done.err.count("\n") == 1
    assert f"{good}\n  format   ArrayRecord" in done.out
    status, found = inspected(bad, good)
    assert status == 1
    assert found[0]["path"] == str(bad)
    assert str(bad) in found[0]["error"]
    assert found[1]["records"] == 1


# Records for people


def example(**features):
    lists = {
        bytes: example_samples.bytes_list,
        float: example_samples.float_list,
        int: example_samples.int_list,
    }
    written = {name: lists[type(v[0])](*v) for name, v in features.items()}
    return example_samples.example(*written.items())


@pytest.mark.parametrize(
    ("record", "kind", "text"),
    [
        (b"", "bytes", "empty"),
        (b"caf\xc3\xa9\n", "text", r"'café\n'"),
        (b' {"a":\n 1}', "json", '{"a": 1}'),
        (b'{"a":', "text", "'{\"a\":'"),
        (b"\x00\x01\xff", "bytes", "3 B: 00 01 ff"),
        (bytes(30), "bytes", f"30 B: {' '.join(['00'] * 24)}..."),
        (b"\xff\xd8\xff\xe0" + bytes(2000), "bytes", "JPEG image, 2.0 KiB"),
        (b"\x89PNG\r\n\x1a\n", "bytes", "PNG image, 8 B"),
        (b"\x93NUMPY\x01\x00", "bytes", "NumPy array, 8 B"),
        (example(a=[7]), "example", "{a: int64[1] (7)}"),
        (
            example(n=[-1, 2, 3, 4, 5]),
            "example",
            "{n: int64[5] (-1, 2, 3, 4, ...)}",
        ),
        (example(f=[0.5, 0.1]), "example", "{f: float32[2] (0.5, 0.1)}"),
        (
            example(b=[b"text", b"\xff\x00"]),
            "example",
            "{b: bytes[2] ('text', 2 B: ff 00)}",
        ),
        (
            example(b=[b"\xff\xd8\xff" + bytes(5000)]),
            "example",
            "{b: bytes[1] (JPEG image, 4.9 KiB)}",
        ),
    ],
)
def test_records_are_shown_by_their_kind(record, kind, text):
    assert describe_record(record) == (kind, text)


# The command itself


def test_help_names_every_command():
    done = run("--help")
    assert (done.status, done.err) == (0, "")
    for command in "convert", "inspect", "bench":
        assert f"\n    {command} " in done.out
        assert run(command, "--help").status == 0
    assert run("--version").out.startswith("gristmill 0.")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "usage: gristmill [-h]"),
        (("melt",), "invalid choice: 'melt'"),
        (("inspect",), "the following arguments are required: FILE"),
        (("inspect", "x", "--head", "-1"), "argument --head"),
        (("inspect", "x", "--from", "files"), "invalid choice: 'files'"),
    ],
)
def test_misuse_exits_with_status_2(arguments, expected):
    done = run(*arguments)
    assert (done.status, done.out) == (2, "")
    assert expected in done.err


def test_missing_file_exits_with_status_1(tmp_path):
    done = run("inspect", tmp_path / "no")
    assert done == (
        1,
        "",
        f"gristmill: {tmp_path}/no: there is no such file or folder.\n",
    )


@pytest.mark.multiprocess
def test_closed_output_pipe_exits_with_status_0(tmp_path):
    path = write_array_record(tmp_path / "x", [b"x" * 1000] * 500)
    process = start("inspect", path, "--head", 500)
    assert process.stdout.readline() == f"{path}\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.multiprocess
def test_full_output_device_is_a_one_line_error(tmp_path):
    path = write_array_record(tmp_path / "x", [b"x"])
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "inspect", str(path)], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert done.stderr == b"gristmill: [Errno 28] No space left on device\n"


@pytest.mark.multiprocess
def test_module_and_console_script_are_the_same():
    script = "import sys; from gristmill._cli import main; sys.exit(main())"
    for command in COMMAND, [sys.executable, "-c", script]:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("gristmill 0.")


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("inspect", "Pass --from tfrecord|array_record|parquet|jsonl."),
        ("bench", "Give it a name that does, such as x.tfrecord or x.array_record."),
    ],
)
def test_unknown_format_error_advises_to_name_it(tmp_path, command, advice):
    path = tmp_path / "unknown"
    path.write_text("what is this")
    done = run(command, path)
    assert done.status == 1
    assert done.err.endswith(f" the format. {advice}\n")
