"""Tests that data sets of MosaicML Streaming read as mosaicml-streaming reads them."""

import builtins
import io
import json
import logging
import os
import pathlib
import pickle
import shutil
import threading

import fsspec
import hypothesis.extra.numpy as hnp
import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import errors, sources
from gristmill.sources import _mds_columns, _mds_unpacking
from support import mds_files

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
NUMBERS = INTEGERS + FLOATS
PIXELS = hnp.arrays(np.uint8, (4, 3, 3))
PICTURES = PIXELS.map(PIL.Image.fromarray)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=5,
)


def arrays(dtypes, shapes=None):
    shapes = shapes or hnp.array_shapes(max_dims=3, max_side=4)
    return st.sampled_from(dtypes).flatmap(lambda dtype: hnp.arrays(dtype, shapes))


def jpeg(picture):
    file = io.BytesIO()
    picture.save(file, "JPEG")
    return file.getvalue()


VALUES = {
    "bytes": st.binary(max_size=20),
    "str": st.text(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "ndarray": arrays(NUMBERS),
    "ndarray:uint16": arrays(["uint16"]),
    "ndarray:float32:2,3": arrays(["float32"], (2, 3)),
    "str_int": st.integers(),
    "str_float": st.floats(),
    "str_decimal": st.decimals(),
    "json": JSON,
    "pkl": st.frozensets(st.integers()),
    "pil": PICTURES,
    "jpeg": PICTURES,
    "png": PICTURES,
    "jpeg_array": st.lists(PICTURES.map(jpeg), min_size=1, max_size=2),
    "jpegarray": st.lists(PICTURES.map(jpeg), min_size=1, max_size=2),
    "list[pil]": st.lists(PICTURES, max_size=2),
    "list[jpeg]": st.lists(PICTURES, max_size=2),
    "list[png]": st.lists(PICTURES, max_size=2),
}
VALUES |= {name: hnp.from_dtype(np.dtype(name)) for name in NUMBERS}


# Damaged pickles may run any code.
DAMAGED = sorted({*VALUES} - {"pkl"})
BYTES = st.integers(0, 255)
ACCESSES = st.sampled_from(["pread", "mmap"])


def data_sets(encodings):
    """Draw the columns and the samples of a data set."""
    names = st.text(min_size=1, max_size=3)
    columns = st.dictionaries(names, st.sampled_from(encodings), min_size=1, max_size=4)
    return columns.flatmap(
        lambda drawn: st.tuples(
            st.just(drawn),
            st.lists(
                st.fixed_dictionaries({name: VALUES[drawn[name]] for name in drawn}),
                min_size=1,  # Streaming cannot read an empty data set.
                max_size=4,
            ),
        )
    )


@given(data_sets(sorted(VALUES)), st.sampled_from([None, 1, 150]))
@settings(max_examples=30, deadline=None)
def test_samples_match_streaming(tmp_path_factory, data_set, size_limit):
    folder = tmp_path_factory.mktemp("drawn") / "data"
    mds_files.write(folder, *data_set, size_limit=size_limit)
    found = list(sources.MDSDataSource(folder, allow_pickle=True))
    mds_files.assert_equal(found, mds_files.read(folder))


@pytest.mark.parametrize("encoding", sorted(VALUES))
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_each_encoding_matches_streaming(tmp_path_factory, encoding, data):
    folder = tmp_path_factory.mktemp("drawn") / "data"
    sample = {"x": data.draw(VALUES[encoding]), "": "other"}
    mds_files.write(folder, {"x": encoding, "": "str"}, [sample])
    found = list(sources.MDSDataSource(folder, allow_pickle=True))
    mds_files.assert_equal(found, mds_files.read(folder))


COLUMNS = {"id": "int", "text": "str", "x": "ndarray:uint16"}
SAMPLES = [
    {"id": i, "text": "é" * i, "x": np.arange(i + 1, dtype=np.uint16)}
    for i in range(10)
]
CODECS = ["br:1", "bz2", "gz:1", "snappy", "zstd", "zstd:7"]


@pytest.fixture
def folder(tmp_path):
    return mds_files.write(tmp_path / "data", COLUMNS, SAMPLES, size_limit=300)


@pytest.fixture
def packed(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "cache"))
    return mds_files.write(
        tmp_path / "packed", COLUMNS, SAMPLES, size_limit=300, compression="zstd"
    )


def shard(folder, number=0, end="mds"):
    return pathlib.Path(folder, f"shard.{number:05d}.{end}")


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_shards_match_streaming(tmp_path, codec):
    folder = mds_files.write(
        tmp_path / "data", COLUMNS, SAMPLES, size_limit=300, compression=codec
    )
    source = sources.MDSDataSource(folder, cache_dir=tmp_path / "cache")
    found = list(source)
    assert not list(pathlib.Path(folder).glob("*.mds"))
    mds_files.unpack(folder)
    mds_files.assert_equal(found, mds_files.read(folder))
    # The copies of Streaming are used, and the source is the same for a saved state.
    beside = sources.MDSDataSource(folder, cache_dir=tmp_path / "none")
    mds_files.assert_equal(list(beside), found)
    assert not (tmp_path / "none").exists()
    assert repr(beside) == repr(source)


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_samples_are_read_in_any_order(folder, access):
    source = pickle.loads(pickle.dumps(sources.MDSDataSource(folder, access=access)))
    found = source.__getitems__([7, 0, 9, 0])
    assert [sample["id"] for sample in found] == [7, 0, 9, 0]
    mds_files.assert_equal(found[0], SAMPLES[7])
    assert not found[0]["x"].flags.writeable
    assert all(sample["x"].flags.aligned for sample in source)


def test_several_data_sets_follow_each_other(folder, tmp_path):
    other = mds_files.write(tmp_path / "other", {"y": "uint8"}, [{"y": 3}, {"y": 4}])
    source = sources.MDSDataSource([folder + "/", pathlib.Path(other)])
    assert len(source) == 12
    assert source[9]["id"] == 9
    assert source[11] == {"y": 4}


def test_merged_data_sets_have_shards_in_subfolders(folder, tmp_path):
    os.mkdir(tmp_path / "all")
    os.rename(folder, tmp_path / "all" / "0")
    index = json.loads((tmp_path / "all" / "0" / "index.json").read_text())
    for entry in index["shards"]:
        entry["raw_data"]["basename"] = "0/" + entry["raw_data"]["basename"]
    (tmp_path / "all" / "index.json").write_text(json.dumps(index))
    found = list(sources.MDSDataSource(tmp_path / "all"))
    mds_files.assert_equal(found, mds_files.read(tmp_path / "all"))


def test_no_samples_is_an_empty_source(tmp_path):
    folder = mds_files.write(tmp_path / "data", COLUMNS, [])
    source = sources.MDSDataSource(folder)
    assert (len(source), list(source)) == (0, [])
    assert repr(source).startswith("MDSDataSource(")


@pytest.mark.parametrize("name", ["folder", "packed"])
def test_remote_data_set_equals_the_local_one(name, request, tmp_path):
    folder = request.getfixturevalue(name)
    for path in pathlib.Path(folder).iterdir():
        with fsspec.open(f"memory://{name}/{path.name}", "wb") as far:
            far.write(path.read_bytes())
    source = sources.MDSDataSource(f"memory://{name}/", validate_hash=None)
    mds_files.assert_equal(list(source), SAMPLES)


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_shuffles_and_resumes(packed, workers):
    def batches():
        return iter(
            gristmill.DataLoader(
                data_source=sources.MDSDataSource(packed),
                sampler=gristmill.IndexSampler(
                    10, gristmill.ShardOptions(0, 1), True, num_epochs=1, seed=3
                ),
                worker_count=workers,
            )
        )

    whole = [sample["id"] for sample in batches()]
    assert sorted(whole) == list(range(10))
    iterator = batches()
    first = [next(iterator)["id"] for _ in range(4)]
    resumed = batches()
    resumed.set_state(iterator.get_state())
    assert first + [sample["id"] for sample in resumed] == whole


def test_shard_is_decompressed_once_for_all_sources(packed):
    first = sources.MDSDataSource(packed)
    copies = first[0]["id"], len(os.listdir(os.environ["GRISTMILL_CACHE_DIR"] + "/mds"))
    for path in pathlib.Path(packed).glob("*.zstd"):
        path.write_bytes(bytes(path.stat().st_size))
    first.close()
    assert sources.MDSDataSource(packed)[0]["id"] == first[0]["id"] == 0
    assert copies == (0, 2)  # The copy of one shard, and a lock.
    with pytest.raises(errors.CorruptRecord, match=r"\d\.mds\.zstd: .* as zstd"):
        first[9]


def test_threads_decompress_a_shard_once(packed, tmp_path, monkeypatch):
    calls = []
    unpack = _mds_unpacking._decompress
    monkeypatch.setattr(
        _mds_unpacking, "_decompress", lambda *args: calls.append(1) or unpack(*args)
    )
    target = str(tmp_path / "cache" / f"{0:020x}-copy.mds")
    packed_shard = str(shard(packed, 0, "mds.zstd"))
    size = json.loads(pathlib.Path(packed, "index.json").read_text())
    arguments = packed_shard, "zstd", size["shards"][0]["raw_data"]["bytes"], target
    threads = [
        threading.Thread(target=_mds_unpacking.unpack, args=arguments) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_rewritten_data_set_is_decompressed_again(packed):
    assert sources.MDSDataSource(packed)[1]["text"] == "é"
    shutil.rmtree(packed)
    changed = [{**sample, "text": "e"} for sample in SAMPLES]
    mds_files.write(packed, COLUMNS, changed, size_limit=300, compression="zstd")
    assert sources.MDSDataSource(packed)[1]["text"] == "e"


def test_full_disk_is_a_warning(packed, caplog, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with caplog.at_level(logging.WARNING):
        sources.MDSDataSource(packed)
    assert "shards decompress to 0.0 GB" in caplog.text
    assert "cache_dir=" in caplog.text


@pytest.mark.parametrize("algorithm", ["sha1", "xxh3_64"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_hashes_are_validated_on_request(tmp_path, algorithm, compression):
    folder = mds_files.write(
        tmp_path / "data",
        COLUMNS,
        SAMPLES,
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


def test_pickle_needs_the_option(tmp_path):
    folder = mds_files.write(tmp_path / "data", {"any": "pkl"}, [{"any": {1, 2}}])
    with pytest.raises(ValueError, match=r"'any' has pickles.*allow_pickle=True"):
        sources.MDSDataSource(folder)
    assert sources.MDSDataSource(folder, allow_pickle=True)[0] == {"any": {1, 2}}


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
    ({"samples": -1}, "samples must be at least 0, got -1"),
    ({"raw_data": None}, "raw_data must be a dict, got null"),
    ({"raw_data": {"basename": "../a", "bytes": 9}}, "in the data set's folder"),
    ({"raw_data": {"basename": "/a", "bytes": 9}}, "in the data set's folder"),
    ({"raw_data": {"bytes": 9}}, "expected an object with 'basename'"),
    ({"column_names": []}, "differ in length"),
    ({"column_names": ["a", "a", "b"]}, "column_names must differ"),
    ({"column_names": [1, 2, 3]}, "column_names must be a str, got 1"),
    ({"column_sizes": [-1, None, None]}, "column_sizes must be at least 0, got -1"),
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


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"version": 2}', "\0"])
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


def test_truncation_after_opening_names_the_sample(folder):
    source = sources.MDSDataSource(folder)
    assert source[0]["id"] == 0
    os.truncate(shard(folder), shard(folder).stat().st_size - 1)
    with pytest.raises(errors.CorruptRecord, match=r"00000\.mds: .*sample \d at offs"):
        source.__getitems__(range(3))


@given(st.data())
@settings(max_examples=80, deadline=None)
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
