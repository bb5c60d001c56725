"""Tests of reading Bagz files by record number, compared with bagz."""

import os
import pickle
import struct

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as grain
from gristmill import errors, sources
from support import extras

bagz = extras.bagz()

# A zstd frame without a content size; it decompresses to 500 times "q".
UNKNOWN_SIZE = b"(\xb5/\xfd\x00\x00M\x00\x00\x10qq\x01\x00\xef*\xc0\x02"


def write(path, records, limits=bagz.LimitsPlacement.TAIL):
    options = bagz.Writer.Options(limits_placement=limits)
    with bagz.Writer(path, options) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def raw(path, records):
    """Write the given bytes of each record unchanged, and the limits."""
    ends = np.cumsum([len(record) for record in records])
    path.write_bytes(b"".join(records) + struct.pack(f"<{len(ends)}Q", *ends))
    return str(path)


RECORDS = [b"%d" % i * (i % 50) for i in range(300)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Write three files of 100, 0 and 200 records, and return their shard pattern."""
    folder = tmp_path_factory.mktemp("shards")
    for shard, part in enumerate([RECORDS[:100], [], RECORDS[100:]]):
        write(folder / f"train-{shard:05d}-of-00003.bagz", part)
    return str(folder / "train@3.bagz")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.binary(max_size=20) | st.binary(max_size=20).map(lambda b: b * 5000)),
    st.sampled_from(["bag", "bagz", "other"]),
    st.sampled_from([bagz.LimitsPlacement.TAIL, bagz.LimitsPlacement.SEPARATE]),
)
def test_records_match_bagz(tmp_path_factory, records, end, limits):
    path = write(tmp_path_factory.getbasetemp() / f"drawn.{end}", records, limits)
    source = sources.BagDataSource(path, limits=limits.name.lower())
    assert len(source) == len(records)
    assert list(source) == records
    options = bagz.Reader.Options(limits_placement=limits)
    assert list(bagz.Reader(path, options)) == records


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_shards_are_one_list_in_any_order(shards, access):
    source = sources.BagDataSource(shards, access=access)
    oracle = bagz.Reader(shards)
    order = np.random.default_rng(0).permutation(300)
    assert source.__getitems__(order) == oracle.read_indices(order.tolist())
    assert source.sizes([299, 49]).tolist() == [3 * 49, 2 * 49]
    assert len(sources.BagDataSource(shards.replace("@3", "@*"))) == 300
    with pytest.raises(ValueError, match=r"should be in \[0, num_records\), got -1"):
        source[-1]


def test_missing_shards_are_named(shards):
    with pytest.raises(FileNotFoundError, match=r"train-00000-of-00004\.bagz"):
        sources.BagDataSource(shards.replace("@3", "@4")).close()


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_shuffle_and_resume(shards, workers):
    def loader():
        return grain.DataLoader(
            data_source=sources.BagDataSource(shards),
            sampler=grain.IndexSampler(300, shuffle=True, num_epochs=1, seed=3),
            worker_count=workers,
        )

    iterator = iter(loader())
    first = [next(iterator) for _ in range(100)]
    state = iterator.get_state()
    rest = list(iterator)
    again = iter(loader())
    again.set_state(state)
    assert list(again) == rest
    assert sorted(first + rest) == sorted(RECORDS)


def test_pickled_source_serves_same_records(shards):
    source = sources.BagDataSource(shards)
    again = pickle.loads(pickle.dumps(source))
    assert again[250] == RECORDS[250]
    assert repr(again) == repr(source)


def test_frames_without_content_size_are_read(tmp_path):
    path = raw(tmp_path / "a.bagz", [UNKNOWN_SIZE, b"", UNKNOWN_SIZE])
    assert list(sources.BagDataSource(path)) == list(bagz.Reader(path))
    assert sources.BagDataSource(path).sizes([0, 1]).tolist() == [500, 0]


def test_files_at_urls_are_read(tmp_path):
    path = write(tmp_path / "a.bagz", RECORDS)
    with open(path, "rb") as file, fsspec.open("memory://far.bagz", "wb") as far:
        far.write(file.read())
    try:
        source = sources.BagDataSource("memory://far.bagz")
        read = grain.MapDataset.source(source).shuffle(seed=1).to_iter_dataset()
        assert sorted(read) == sorted(RECORDS)
    finally:
        fsspec.filesystem("memory").store.clear()


def test_compression_follows_option_or_file_name(tmp_path):
    path = raw(tmp_path / "a.bagz", [b"plain"])
    assert sources.BagDataSource(path, compression="none")[0] == b"plain"
    with pytest.raises(errors.CorruptRecord, match=r"record 0 at offset 0: .*zstd"):
        sources.BagDataSource(path)[0]
    with pytest.raises(ValueError, match=r"compression must be .*got 'gzip'"):
        sources.BagDataSource(path, compression="gzip")
    with pytest.raises(ValueError, match=r"limits must be .*got 'head'"):
        sources.BagDataSource(path, limits="head")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1234567", "7 bytes, expected at least 8"),
        (b"a" * 8 + struct.pack("<Q", 3), "at offset 3 of 16"),
        (
            b"ab" + struct.pack("<QQQ", 2, 1, 2),
            "record 1 is 1, expected one from 2 to 2",
        ),
        (struct.pack("<QQ", 5, 0), "record 0 is 5, expected one from 0 to 0"),
    ],
)
def test_damaged_limits_are_refused(tmp_path, content, message):
    (tmp_path / "a.bag").write_bytes(content)
    with pytest.raises(errors.CorruptRecord, match=rf"a\.bag: .*{message}"):
        sources.BagDataSource(tmp_path / "a.bag")[0]


@pytest.mark.parametrize("record", [UNKNOWN_SIZE[:-4], b"(\xb5/\xfd \x05)\0\0hell"])
def test_damaged_records_leave_the_others(tmp_path, record):
    path = raw(tmp_path / "a.bagz", [UNKNOWN_SIZE, record])
    source = sources.BagDataSource(path)
    assert source[0] == b"q" * 500
    with pytest.raises(errors.CorruptRecord, match=r"a\.bagz: record 1 at offset 18"):
        source[1]


def test_file_replaced_after_counting_is_refused(tmp_path):
    source = sources.BagDataSource(write(tmp_path / "a.bag", RECORDS))
    write(tmp_path / "a.bag", [b"other", *RECORDS])
    with pytest.raises(errors.CorruptRecord, match=r"a\.bag: the file has changed"):
        source[0]


def test_truncated_file_is_refused(tmp_path):
    path = write(tmp_path / "a.bag", RECORDS)
    os.truncate(path, os.path.getsize(path) - 3)
    with pytest.raises(errors.CorruptRecord, match="was not copied whole"):
        sources.BagDataSource(path)
    with pytest.raises(FileNotFoundError, match=r"limits\.a\.bag"):
        sources.BagDataSource(path, limits="separate")
