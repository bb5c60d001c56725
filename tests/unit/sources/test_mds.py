"""Tests that data sets of MosaicML Streaming read as mosaicml-streaming reads them."""

import errno
import json
import logging
import os
import pathlib
import pickle
import shutil
import threading

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import errors, sources
from gristmill.sources import _mds_unpacking
from support import mds_files
from support.mds_files import SAMPLES, shard
from support.mds_values import VALUES, data_sets

CODECS = ["br:1", "bz2", "gz:1", "snappy", "zstd", "zstd:7"]


@pytest.fixture
def folder(tmp_path):
    return mds_files.write_samples(
        tmp_path / "data",
    )


@pytest.fixture
def packed(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "cache"))
    return mds_files.write_samples(tmp_path / "packed", compression="zstd")


@given(data_sets(sorted(VALUES)), st.sampled_from([None, 1, 150]))
@settings(max_examples=20, deadline=None)
def test_samples_match_streaming(tmp_path_factory, data_set, size_limit):
    folder = tmp_path_factory.mktemp("drawn") / "data"
    mds_files.write(folder, *data_set, size_limit=size_limit)
    found = list(sources.MDSDataSource(folder, allow_pickle=True))
    mds_files.assert_equal(found, mds_files.read(folder))


@pytest.mark.parametrize("encoding", sorted(VALUES))
@given(st.data())
@settings(max_examples=3, deadline=None)
def test_each_encoding_matches_streaming(tmp_path_factory, encoding, data):
    folder = tmp_path_factory.mktemp("drawn") / "data"
    sample = {"x": data.draw(VALUES[encoding]), "": "other"}
    mds_files.write(folder, {"x": encoding, "": "str"}, [sample])
    found = list(sources.MDSDataSource(folder, allow_pickle=True))
    mds_files.assert_equal(found, mds_files.read(folder))


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_shards_match_streaming(tmp_path, codec):
    folder = mds_files.write_samples(tmp_path / "data", compression=codec)
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
    folder = mds_files.write(tmp_path / "data", mds_files.COLUMNS, [])
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
    mds_files.write(
        packed, mds_files.COLUMNS, changed, size_limit=300, compression="zstd"
    )
    assert sources.MDSDataSource(packed)[1]["text"] == "e"


def test_relative_cache_folder_survives_a_change_of_folder(
    packed, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", "here/../relative")
    source = sources.MDSDataSource(packed)
    monkeypatch.chdir("/")
    assert source[0]["id"] == 0
    assert (tmp_path / "relative" / "mds").is_dir()


def test_full_disk_names_the_option(packed, monkeypatch):
    def fail(path, data):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(gristmill._core, "replace_file", fail)
    with pytest.raises(OSError, match="No space left") as raised:
        sources.MDSDataSource(packed)[0]
    (note,) = raised.value.__notes__
    assert "cache_dir=, to a writable folder" in note


def test_too_few_free_bytes_are_a_warning(packed, caplog, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with caplog.at_level(logging.WARNING):
        sources.MDSDataSource(packed)
    assert "shards decompress to 0.0 GB" in caplog.text
    assert "cache_dir=" in caplog.text
