"""Tests that ArrayRecordDataSource, with the native reader, matches Grain's."""

import dataclasses
import itertools
import os
import pathlib
import pickle
import threading

import numpy as np
import pytest
from absl import flags
from array_record.python import array_record_data_source as wheel
from array_record.python.array_record_module import ArrayRecordWriter

import gristmill
from faults.scripts import run
from gristmill import _core, errors, sources

flags.FLAGS.mark_as_parsed()

BLOCK = 65536


def write(path, records, options="group_size:1"):
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return str(path)


def records_of(shard, count):
    return [bytes([shard]) * (i % 50) + b"%d" % i for i in range(count)]


@pytest.fixture
def paths(tmp_path):
    counts = (5, 0, 300, 1)
    return [
        write(
            tmp_path / f"data-{i:05d}-of-00004.array_record",
            records_of(i, count),
            "group_size:16" if i == 2 else "group_size:1",
        )
        for i, count in enumerate(counts)
    ]


@dataclasses.dataclass(frozen=True)
class Instruction:
    filename: str
    skip: int
    take: int
    examples_in_shard: int


def forms(paths):
    """Return paths in every form that the source accepts."""
    first, _, large, _ = paths
    return {
        "one path": first,
        "a pathlib path": pathlib.Path(large),
        "a list": paths,
        "a tuple": tuple(paths),
        "part of a file": f"{large}[7:30]",
        "an empty part": [f"{large}[7:7]", first],
        "an instruction": Instruction(large, 100, 150, 300),
        "a mix": [Instruction(large, 0, 2, 300), first, f"{large}[299:300]"],
    }


FORMS = (
    "one path",
    "a pathlib path",
    "a list",
    "a tuple",
    "part of a file",
    "an empty part",
    "an instruction",
    "a mix",
)


@pytest.mark.parametrize("form", FORMS)
def test_records_match_grain(paths, form):
    ours = sources.ArrayRecordDataSource(forms(paths)[form])
    theirs = wheel.ArrayRecordDataSource(forms(paths)[form])
    keys = list(range(len(theirs)))
    expected = [theirs[i] for i in keys]
    assert len(ours) == len(theirs)
    assert [ours[i] for i in keys] == expected
    assert list(ours) == expected
    assert ours.__getitems__(keys[::-1]) == expected[::-1]
    assert ours.sizes(keys).tolist() == [len(record) for record in expected]
    assert repr(ours) == repr(theirs)
    assert ours.paths == theirs._paths


@pytest.mark.parametrize("name", ["data@4", "data@*", "data-*", "data-0000?-of-00004"])
def test_shard_patterns_are_expanded(tmp_path, name):
    for i in range(4):
        write(tmp_path / f"data-{i:05d}-of-00004", records_of(i, i))
    source = sources.ArrayRecordDataSource(str(tmp_path / name))
    assert list(source) == [r for i in range(4) for r in records_of(i, i)]
    assert len(source.paths) == 4


def test_options_are_checked_before_files_are_opened(paths):
    part = f"{paths[0]}[0:4]"
    with pytest.raises(ValueError, match=r"verify must .*got 'nope'"):
        sources.ArrayRecordDataSource(part, verify="nope")
    with pytest.raises(ValueError, match=r"access must .*got 'nope'"):
        sources.ArrayRecordDataSource(part, access="nope")
    with pytest.raises(ValueError, match="storage_options needs a URL"):
        sources.ArrayRecordDataSource(part, storage_options={"anon": True})


def test_keys_changed_during_read_give_valid_records(paths):
    source = sources.ArrayRecordDataSource(paths)
    expected = [source[0], source[305]]
    keys = np.zeros(2, np.int64)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            keys[:] = 0, 305
            keys[:] = 305, 0

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(2000):
            assert all(record in expected for record in source.__getitems__(keys))
    finally:
        stop.set()
        thread.join()


def test_no_keys_give_empty_packed_data(paths):
    reader = sources.ArrayRecordDataSource(paths[2]).reader
    data, offsets = reader.read_many(np.empty(0, np.int64), packed=True)
    assert data.size == 0 and offsets.tolist() == [0]


def test_groups_match_chunks(paths):
    groups = sources.ArrayRecordDataSource(paths).groups
    assert groups.tolist() == [1] * 5 + [0] + [16] * 18 + [12] + [1]
    part = sources.ArrayRecordDataSource([f"{paths[2]}[30:50]", f"{paths[2]}[16:32]"])
    assert part.groups.tolist() == [2, 16, 2, 16]


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_chunks_are_shuffled_as_groups(paths, workers):
    source = sources.ArrayRecordDataSource(paths)
    sampler = gristmill.samplers.GroupShuffleSampler(
        source.groups, window=4, num_epochs=1, seed=2
    )
    loader = gristmill.DataLoader(
        data_source=source, sampler=sampler, worker_count=workers
    )
    found = list(loader)
    assert found != list(source)
    assert sorted(found) == sorted(source)


@pytest.mark.parametrize("key", [-1, 306, 2**70])
def test_error_of_key_out_of_range_matches_grain(paths, key):
    ours = sources.ArrayRecordDataSource(paths)
    theirs = wheel.ArrayRecordDataSource(paths)
    with pytest.raises(ValueError) as refusal:
        theirs[key]
    for read in (ours.__getitem__, lambda k: ours.__getitems__([0, k])):
        with pytest.raises(ValueError, match=rf"got {key} for the 306 records") as e:
            read(key)
        assert str(refusal.value) in str(e.value)
    assert ours[305] == theirs[305]


def test_sizes_of_keys_out_of_range_are_refused(paths):
    source = sources.ArrayRecordDataSource(paths)
    with pytest.raises(ValueError, match="got 306 for the 306 records"):
        source.sizes(np.array([3, 306]))


def test_keys_may_be_any_integer_type(paths):
    source = sources.ArrayRecordDataSource(paths)
    assert source[np.int32(3)] == source[3]
    assert source.__getitems__(np.array([3, 4], np.uint8)) == [source[3], source[4]]
    with pytest.raises(TypeError):
        source[1.0]


def test_pickled_source_has_public_name_and_reads(paths):
    source = sources.ArrayRecordDataSource(paths, verify="headers", cache_bytes=0)
    again = pickle.loads(pickle.dumps(source))
    assert type(again).__module__ == "gristmill.sources"
    assert list(again) == list(source)
    assert repr(again) == repr(source)


def test_closed_source_reopens_its_files(paths):
    with sources.ArrayRecordDataSource(paths) as source:
        first = source[0]
    assert source[0] == first


def test_files_given_by_part_are_opened_when_read(paths, tmp_path):
    missing = str(tmp_path / "missing")
    source = sources.ArrayRecordDataSource([f"{paths[0]}[0:5]", f"{missing}[0:3]"])
    assert len(source) == 8
    assert source[4] == records_of(0, 5)[4]
    with pytest.raises(FileNotFoundError, match="missing"):
        source[5]
    assert source[4] == records_of(0, 5)[4]


def test_part_past_end_of_file_is_named(paths):
    source = sources.ArrayRecordDataSource(f"{paths[0]}[2:9]")
    with pytest.raises(IndexError, match=r"expected records 2 to 9, found 5 records$"):
        source[0]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "Paths sequence can not be of 0 length"),
        ([3], "All elements in a path sequence must be of type"),
        (3, "Unsupported path format was used"),
        ("x[5:2]", "must be at least its start 5, got 2"),
    ],
)
def test_paths_of_other_types_are_refused(given, text):
    with pytest.raises(ValueError) as refusal:
        sources.ArrayRecordDataSource(given)
    assert text in str(refusal.value)


@pytest.mark.claim(
    "A missing or damaged ArrayRecord file raises RuntimeError when it is "
    'first read; a truncated one may return b""'
)
def test_missing_and_foreign_files_are_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sources.ArrayRecordDataSource(str(tmp_path / "nowhere"))
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"x" * 70000)
    with pytest.raises(errors.CorruptRecord, match="foreign: "):
        sources.ArrayRecordDataSource(str(foreign))


@pytest.mark.parametrize("codec", ["uncompressed", "zstd", "brotli:1", "snappy"])
@pytest.mark.parametrize("group", [1, 7])
def test_records_are_counted_without_list_of_chunks(tmp_path, codec, group):
    path = write(tmp_path / "data", [b"x"] * 40_000, f"group_size:{group},{codec}")
    chunks = -(-40_000 // group)
    stamp = os.path.getsize(path), os.stat(path).st_mtime_ns
    assert _core.count_records(path) == (40_000, chunks, stamp)
    assert _core.count_all_records([path, path]) == [(40_000, chunks, stamp)] * 2


def test_damaged_list_of_chunks_fails_when_read(tmp_path):
    good, bad = (
        write(tmp_path / name, [b"x"] * 100_000, "group_size:1,uncompressed")
        for name in ("good", "bad")
    )
    # Damage the last entry of the footer, before the padding and the postscript.
    flip(
        bad,
        len(pathlib.Path(bad).read_bytes().rstrip(b"\0")[:-BLOCK].rstrip(b"\0")) - 1,
    )
    source = sources.ArrayRecordDataSource([good, bad])
    assert len(source) == 200_000
    assert source[99_999] == b"x"
    with pytest.raises(errors.CorruptRecord, match="bad: footer: "):
        source[100_000]


@pytest.mark.parametrize("count", [4, 6])
def test_file_replaced_after_counting_is_refused(tmp_path, count):
    path = write(tmp_path / "data", [b"a"] * 5)
    source = sources.ArrayRecordDataSource(path)
    restored = pickle.loads(pickle.dumps(source))
    os.remove(path)
    write(path, [b"b"] * count)
    for each in (source, restored):
        with pytest.raises(
            errors.CorruptRecord, match="since its records were counted"
        ):
            each[0]


@pytest.mark.claim(
    "ArrayRecordDataSource is a subclass of the array-record package's class, "
    "which reads the files"
)
def test_reader_options_are_checked_by_name(paths):
    options = {"readahead_buffer_size": "16M", "index_storage_option": "in_memory"}
    assert len(sources.ArrayRecordDataSource(paths, options)) == 306
    with pytest.raises(ValueError, match=r"reader_options must .*got 'buffer'"):
        sources.ArrayRecordDataSource(paths, {"buffer": "1"})


def test_files_with_groups_are_warned_about_once(paths, caplog):
    sources.ArrayRecordDataSource([paths[2], paths[2]])
    (warning,) = caplog.records
    assert "chunks of 16 records" in warning.getMessage()


class Parse(gristmill.transforms.Map):
    def map(self, record):
        return {"first": record[:1], "size": len(record)}


class Draw(gristmill.transforms.RandomMap):
    def random_map(self, record, rng):
        return len(record) + rng.random()


class Split(gristmill.transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, record):
        return [record[:1], record[1:2], record[2:3]]


CHAINS = {
    "records": [],
    "batches of sizes": [Parse(), gristmill.transforms.Batch(7)],
    "draws": [Draw(), gristmill.transforms.Batch(7)],
    "splits": [Split()],
}


def loader_over(source, chain, workers, shuffle=True, read_options=None):
    return gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(
            len(source),
            gristmill.NoSharding(),
            shuffle=shuffle,
            num_epochs=2,
            seed=3,
        ),
        operations=CHAINS[chain],
        worker_count=workers,
        read_options=read_options,
    )


def plain(elements):
    return [pickle.dumps(element) for element in elements]


@pytest.mark.multiprocess
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("workers", [0, 2])
def test_loader_outputs_match_list_source(paths, chain, workers):
    source = sources.ArrayRecordDataSource(paths)
    expected = plain(loader_over(list(source), chain, workers=0))
    if workers:
        expected = plain(loader_over(list(source), chain, workers))
    assert plain(loader_over(source, chain, workers)) == expected


@pytest.mark.parametrize("options", [(0, 0), (1, 1), (4, 3), (16, 500), (2, 100_000)])
def test_look_ahead_does_not_change_the_order(paths, options):
    source = sources.ArrayRecordDataSource(paths)
    read_options = gristmill.ReadOptions(*options)
    for chain in CHAINS:
        expected = plain(loader_over(list(source), chain, 0))
        found = plain(loader_over(source, chain, 0, read_options=read_options))
        assert found == expected


@pytest.mark.parametrize("chain", CHAINS)
def test_loader_resumes_at_every_position(paths, chain):
    source = sources.ArrayRecordDataSource(paths[2])
    expected = plain(loader_over(source, chain, 0))
    iterator = iter(loader_over(source, chain, 0))
    other = iter(loader_over(source, chain, 0))
    for position in itertools.islice(itertools.count(), 0, len(expected), 13):
        other.set_state(iterator.get_state())
        assert plain(itertools.islice(other, 20)) == expected[position : position + 20]
        list(itertools.islice(iterator, 13))


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 1])
def test_damaged_record_fails_alone(tmp_path, workers):
    records = [b"%03d" % i * 100 for i in range(400)]
    path = write(tmp_path / "data", records, "group_size:1,uncompressed")
    with open(path, "rb") as file:
        flip(path, file.read().index(records[333]))
    source = sources.ArrayRecordDataSource(path)
    iterator = iter(loader_over(source, "records", workers, shuffle=False))
    assert list(itertools.islice(iterator, 333)) == records[:333]
    with pytest.raises(errors.CorruptRecord, match="record 333") as failure:
        next(iterator)
    assert "while reading record 333 (index 333)" in failure.value.__notes__
    assert list(itertools.islice(iterator, 60)) == records[334:394]


class Upper(sources.ArrayRecordDataSource):
    def __getitem__(self, record_key):
        return super().__getitem__(record_key).upper()


def test_getitem_of_subclass_is_used(tmp_path):
    path = write(tmp_path / "data", [b"a", b"b", b"c"])
    loader = loader_over(Upper(path), "records", 0, shuffle=False)
    assert list(loader) == [b"A", b"B", b"C"] * 2


def test_more_files_than_descriptors_can_be_read(tmp_path):
    paths = [
        write(tmp_path / str(i), [b"%d" % (2 * i), b"%d" % (2 * i + 1)])
        for i in range(100)
    ]
    run("array_record/few_descriptors", *paths)
