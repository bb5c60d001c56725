"""Tests of damaged and refused data sets of MosaicML Streaming."""

import builtins
import json
import os
import pathlib
import struct
import sys
import types

import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import errors, sources
from gristmill.sources import _mds_columns
from support import mds_files
from support.mds_files import shard
from support.mds_values import VALUES

# Damaged pickles may run any code.
DAMAGED = sorted({*VALUES} - {"pkl"})
BYTES = st.integers(0, 255)
ACCESSES = st.sampled_from(["pread", "mmap"])


@pytest.fixture
def folder(tmp_path):
    return mds_files.write_samples(
        tmp_path / "data",
    )


@pytest.fixture
def packed(tmp_path):
    return mds_files.write_samples(tmp_path / "packed", compression="zstd")


@pytest.mark.parametrize("algorithm", ["sha1", "xxh3_64"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_hashes_are_validated_on_request(tmp_path, algorithm, compression):
    folder = mds_files.write(
        tmp_path / "data",
        mds_files.COLUMNS,
        mds_files.SAMPLES,
        hashes=["sha1", "xxh3_64"],
        compression=compression,
    )

    def read():
        return sources.MDSDataSource(
            folder, validate_hash=algorithm, cache_dir=tmp_path / "cache"
        )[0]

    assert read()["id"] == 0
    (copy,) = [*tmp_path.glob("cache/*.mds")] if compression else [shard(folder)]
    damaged = bytearray(copy.read_bytes())
    damaged[-1] ^= 1
    copy.write_bytes(damaged)
    with pytest.raises(errors.CorruptRecord, match=rf"mds.*: its {algorithm} is"):
        read()
    if compression:  # The copy was removed.
        assert read()["id"] == 0


@pytest.mark.parametrize(
    ("listed", "match"),
    [
        ("sha256", r"must be one of the hashes .*, sha256, got 'xxhx'"),
        ("xxhx", "must be a hash of hashlib or xxhash, got 'xxhx'"),
    ],
)
def test_unknown_hash_is_an_error(folder, listed, match):
    path = pathlib.Path(folder, "index.json")
    hashes = json.dumps({"hashes": {listed: "0"}})[1:-1]
    path.write_text(path.read_text().replace('"hashes": {}', hashes))
    with pytest.raises(ValueError, match=match):
        sources.MDSDataSource(folder, validate_hash="xxhx")


def test_bad_arguments_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="folders must have at least one folder"):
        sources.MDSDataSource([])
    with pytest.raises(TypeError, match="folders must have only paths, got int"):
        sources.MDSDataSource([5])
    with pytest.raises(TypeError, match=r"must be a path or a list of paths, got int"):
        sources.MDSDataSource(5)
    with pytest.raises(ValueError, match="access must be 'pread' or 'mmap', got 'x'"):
        sources.MDSDataSource(folder, access="x")
    with pytest.raises(ValueError, match="storage_options needs a URL"):
        sources.MDSDataSource(folder, storage_options={"anon": True})
    with pytest.raises(FileNotFoundError, match=r"none/index\.json"):
        sources.MDSDataSource(tmp_path / "none")


def test_pickle_needs_the_option(tmp_path):
    folder = mds_files.write(tmp_path / "data", {"any": "pkl"}, [{"any": {1, 2}}])
    with pytest.raises(ValueError, match=r"'any' has pickles.*allow_pickle=True"):
        sources.MDSDataSource(folder)
    assert sources.MDSDataSource(folder, allow_pickle=True)[0] == {"any": {1, 2}}


@pytest.mark.parametrize("has_module", [False, True])
def test_pickle_of_missing_name_names_its_sample(tmp_path, monkeypatch, has_module):
    module = types.ModuleType("absent")
    module.Thing = type("Thing", (), {"__module__": "absent"})
    monkeypatch.setitem(sys.modules, "absent", module)
    samples = [{"any": 1}, {"any": module.Thing()}]
    folder = mds_files.write(tmp_path / "data", {"any": "pkl"}, samples)
    source = sources.MDSDataSource(folder, allow_pickle=True)
    del module.Thing
    if not has_module:
        del sys.modules["absent"]
    expected = (
        r"shard\.00000\.mds: sample 1: column 'any': this pickle needs a name that"
        r" cannot be imported: .*'absent'.*\. Install its package, or add its folder to"
        r" sys\.path\.$"
    )
    with pytest.raises(ImportError, match=expected):
        source[1]


def test_images_need_pillow(tmp_path, monkeypatch):
    picture = PIL.Image.new("L", (2, 2))
    mds_files.write(tmp_path / "images", {"x": "list[png]"}, [{"x": [picture]}])
    real = builtins.__import__

    def without_pillow(name, *rest):
        if name.startswith("PIL"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="PIL")
        return real(name, *rest)

    _mds_columns._decoder.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(ImportError, match=r"pip install 'gristmill\[image\]'"):
        sources.MDSDataSource(tmp_path / "images")


BAD_INDICES = [
    ({"version": 3}, "version must be 2, got 3"),
    ({"format": "csv"}, "format must be 'mds', got \"csv\""),
    ({"samples": "1"}, 'samples must be a int, got "1"'),
    ({"samples": -1}, "samples must be at least 0 and less than .*, got -1"),
    ({"samples": 2**32}, r"less than 2\*\*32, got 4294967296"),
    ({"raw_data": None}, "raw_data must be a dict, got null"),
    ({"raw_data": {"basename": "../a", "bytes": 9}}, "in the data set's folder"),
    ({"raw_data": {"basename": "/a", "bytes": 9}}, "in the data set's folder"),
    ({"raw_data": {"bytes": 9}}, "expected an object with 'basename'"),
    ({"column_names": []}, "differ in length"),
    ({"column_names": ["a", "a", "b"]}, "column_names must differ"),
    ({"column_names": [1, 2, 3]}, "column_names must be a str, got 1"),
    (
        {"column_sizes": [-1, None, None]},
        "column_sizes must be at least 0 and .*, got -1",
    ),
]


def change_index(folder, fields):
    path = pathlib.Path(folder, "index.json")
    index = json.loads(path.read_text())
    index["shards"][0] |= fields
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(("fields", "match"), BAD_INDICES)
def test_bad_index_names_the_field(folder, fields, match):
    change_index(folder, fields)
    with pytest.raises(errors.CorruptRecord, match=match) as raised:
        sources.MDSDataSource(folder)
    assert f"{folder}/index.json: " in str(raised.value)


def test_unknown_compression_is_an_error(packed):
    change_index(packed, {"compression": "lz4"})
    with pytest.raises(errors.CorruptRecord, match=r"of br, bz2, .*, got 'lz4'"):
        sources.MDSDataSource(packed)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", '{"version": 2}', "\0", "[" * 10**5]
)
def test_damaged_index_is_an_error(folder, text):
    pathlib.Path(folder, "index.json").write_text(text)
    with pytest.raises(errors.CorruptRecord, match=r"index\.json: not an index"):
        sources.MDSDataSource(folder)


@pytest.mark.parametrize(
    "encoding", ["tensor", "ndarray:int7", "ndarray:int8:x", "ndarray:int8:0", "int:8"]
)
def test_unknown_encoding_names_the_column(folder, encoding):
    change_index(folder, {"column_encodings": ["int", "str", encoding]})
    with pytest.raises(ValueError, match=rf"'x' must have an enc.*got '{encoding}'"):
        sources.MDSDataSource(folder)


def test_missing_and_truncated_shards_are_found_at_once(folder):
    os.truncate(shard(folder, 1), 50)
    with pytest.raises(errors.CorruptRecord, match=r"00001\.mds: .* has 50 bytes, exp"):
        sources.MDSDataSource(folder)
    os.remove(shard(folder, 1))
    with pytest.raises(FileNotFoundError, match=r"00001\.mds"):
        sources.MDSDataSource(folder)


def test_other_number_of_samples_is_an_error(folder):
    change_index(folder, {"samples": 1})
    with pytest.raises(
        errors.CorruptRecord, match=r"00000\.mds: offset 0: .* is \d, expected 1"
    ):
        sources.MDSDataSource(folder)[0]
    change_index(folder, {"samples": 2**32 - 1})
    with pytest.raises(errors.CorruptRecord, match=r"expected at least 4 \* \(2 \+ 4"):
        sources.MDSDataSource(folder)[0]


def test_truncated_copy_is_an_error_once(packed, tmp_path):
    options = {"cache_dir": tmp_path / "cache"}
    first = sources.MDSDataSource(packed, **options)[0]["id"]
    (copy,) = tmp_path.glob("cache/*-shard.00000.mds")
    os.truncate(copy, 10)
    with pytest.raises(errors.CorruptRecord, match="the file has 10, expected"):
        sources.MDSDataSource(packed, **options)[0]
    assert sources.MDSDataSource(packed, **options)[0]["id"] == first


def test_truncation_after_opening_names_the_sample(folder):
    source = sources.MDSDataSource(folder)
    assert source[0]["id"] == 0
    os.truncate(shard(folder), shard(folder).stat().st_size - 1)
    with pytest.raises(errors.CorruptRecord, match=r"00000\.mds: .*sample \d at offs"):
        source.__getitems__(range(3))


@pytest.mark.parametrize(
    ("encoding", "value", "match"),
    [
        ("json", b"[" * 10**5, "RecursionError"),
        ("pil", struct.pack("<3I", 40_000, 40_000, 1) + b"L\0", "pixels do not fit"),
    ],
)
def test_damaged_value_needs_neither_stack_nor_memory(encoding, value, match):
    columns = _mds_columns.Columns(("x",), (encoding,), (0,))
    with pytest.raises(_mds_columns.DecodeError, match=match):
        columns.decode(struct.pack("<I", len(value)) + value)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_shard_is_an_error_or_a_sample(tmp_path_factory, data):
    encodings = data.draw(st.lists(st.sampled_from(DAMAGED), min_size=1, max_size=2))
    columns = {str(i): encoding for i, encoding in enumerate(encodings)}
    samples = [{name: data.draw(VALUES[columns[name]]) for name in columns}] * 2
    folder = tmp_path_factory.mktemp("drawn") / "data"
    mds_files.write(folder, columns, samples)
    damaged = bytearray(shard(folder).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(BYTES)
    shard(folder).write_bytes(damaged)
    source = sources.MDSDataSource(folder, access=data.draw(ACCESSES))
    for key in range(2):
        try:
            assert list(source[key]) == list(columns)
        except errors.CorruptRecord as error:
            assert str(shard(folder)) in str(error)
