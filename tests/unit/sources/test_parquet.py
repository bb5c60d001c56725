"""Tests that rows of Parquet files match Grain's, and that groups are decoded once."""

import collections
import itertools
import os
import pickle
import subprocess
import sys
import threading

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import gristmill
from gristmill import DataLoader, samplers, sharding, sources, transforms
from gristmill.samplers import GroupShuffleSampler, IndexSampler
from support.arrow_types import TYPES, same
from support.counting_parquet import Counting

grain = pytest.importorskip("grain")


def table(first, count):
    numbers = np.arange(first, first + count)
    return pa.table({"key": numbers, "half": numbers / 2, "name": numbers.astype(str)})


def row(key):
    return {"key": key, "half": key / 2, "name": str(key)}


@pytest.fixture
def files(tmp_path):
    """Write three files with 100 rows in groups of at most 7."""
    first = 0
    for number, count in enumerate([30, 50, 20]):
        path = tmp_path / f"part-{number}.parquet"
        parquet.write_table(table(first, count), path, row_group_size=7)
        first += count
    return sorted(map(str, tmp_path.glob("*.parquet")))


# Types for which Grain's values depend on the row group, or are floats for integers.
OURS = ["int with nulls", "bool with nulls", "list with nulls"]


@pytest.mark.parametrize("name", [name for name in TYPES if name not in OURS])
def test_values_match_grain(tmp_path, name):
    path = str(tmp_path / "one.parquet")
    parquet.write_table(pa.table({name: TYPES[name]}), path, row_group_size=2)
    theirs = list(grain.experimental.ParquetIterDataset(path))
    source = sources.ParquetDataSource(path)
    assert len(source) == len(theirs) == 3
    assert all(map(same, (source[i] for i in range(3)), theirs))
    assert all(map(same, source.__getitems__([2, 0, 1]), np.take(theirs, [2, 0, 1])))


def test_rows_of_all_files_are_read_in_any_order(files):
    source = sources.ParquetDataSource(files)
    assert len(source) == 100
    assert source.groups.tolist() == [7, 7, 7, 7, 2, 7, 7, 7, 7, 7, 7, 7, 1, 7, 7, 6]
    order = np.random.default_rng(0).permutation(100).tolist()
    assert [source[i] for i in order] == [row(i) for i in order]
    assert source.__getitems__(order) == [row(i) for i in order]
    assert source.__getitems__([]) == []
    assert source.__getitems__([5, 5]) == [row(5), row(5)]
    assert list(source) == [row(i) for i in range(100)]
    assert source[np.int64(3)] == row(3)


@pytest.mark.parametrize("key", [-1, 100, 10**30])
def test_key_out_of_range_is_refused(files, key):
    source = sources.ParquetDataSource(files)
    with pytest.raises(IndexError, match=f"Index {key} out of range for 100"):
        source[key]
    with pytest.raises((IndexError, OverflowError)):
        source.__getitems__([1, key])
    assert source[1] == row(1)


def test_columns_are_selected_in_given_order(files):
    source = sources.ParquetDataSource(files, columns=["name", "key"])
    assert source.columns == ("name", "key")
    assert list(source[31].items()) == [("name", "31"), ("key", 31)]


def test_paths_may_be_files_folders_patterns_and_urls(files, tmp_path):
    folder = str(tmp_path)
    memory = fsspec.filesystem("memory")
    for path in files:
        memory.put(path, f"/gristmill/{os.path.basename(path)}")
    wanted = [row(i) for i in range(100)]
    for paths in (
        files,
        folder,
        tmp_path,
        f"{folder}/part-*.parquet",
        f"{folder}/**/part-?.parquet",
        [files[0], f"{folder}/part-[12].parquet"],
        "memory://gristmill",
        "memory://gristmill/*.parquet",
        [f"memory://gristmill/part-{i}.parquet" for i in range(3)],
    ):
        source = sources.ParquetDataSource(paths)
        assert [source[i] for i in range(100)] == wanted, paths


def test_storage_options_are_refused_for_local_paths(tmp_path):
    path = tmp_path / "x.parquet"
    parquet.write_table(table(0, 3), path)
    options = {"storage_options": {"anon": True}}
    with pytest.raises(ValueError, match="storage_options needs a URL"):
        sources.ParquetDataSource(path, **options)
    with pytest.raises(ValueError, match=r"needs a URL, got .*\*.parquet"):
        sources.ParquetDataSource(f"{tmp_path}/*.parquet", **options)


def test_existing_file_named_like_pattern_is_read(tmp_path):
    path = tmp_path / "a[0].parquet"
    parquet.write_table(table(0, 3), path)
    assert sources.ParquetDataSource(str(path))[2] == row(2)


@pytest.mark.parametrize(
    ("paths", "error", "text"),
    [
        ([], ValueError, "at least one Parquet file"),
        (3, TypeError, "not iterable"),
        ([3], TypeError, r"got 3 \(int\)"),
        ("{tmp}/none.parquet", FileNotFoundError, "at .*none.parquet, found no file"),
        ("{tmp}/*.pq", FileNotFoundError, r"\*.pq, found none"),
        ("{tmp}/empty", FileNotFoundError, r"'folder/\*\*/\*.parquet'"),
        (
            "memory://nowhere/x.parquet",
            FileNotFoundError,
            "nowhere/x.parquet, found",
        ),
        ("{tmp}/zero.parquet", gristmill.CorruptRecord, "zero.parquet, but reading"),
        ("{tmp}/cut.parquet", gristmill.CorruptRecord, "cut.parquet, but reading"),
        ("{tmp}/text.parquet", gristmill.CorruptRecord, "Expected a Parquet file"),
    ],
)
def test_invalid_parquet_files_are_named(tmp_path, paths, error, text):
    (tmp_path / "empty").mkdir()
    whole = tmp_path / "whole.parquet"
    parquet.write_table(table(0, 30), whole)
    (tmp_path / "zero.parquet").write_bytes(b"")
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:-30])
    (tmp_path / "text.parquet").write_text("Not a table. " * 20)
    if isinstance(paths, str):
        paths = paths.format(tmp=tmp_path)
    with pytest.raises(error, match=text):
        sources.ParquetDataSource(paths)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            {"columns": ["nmae"]},
            ValueError,
            "got 'nmae'. It has 'key', 'half', 'n",
        ),
        ({"columns": []}, ValueError, "columns must have at least one"),
        ({"columns": "key"}, TypeError, "got the str 'key'"),
        ({"cache_bytes": -1}, ValueError, "cache_bytes must be at least 0, got -1"),
        ({"cache_bytes": 1.5}, TypeError, "cache_bytes must be an int, got float"),
        ({"unheard_of": 1}, TypeError, "unheard_of"),
    ],
)
def test_bad_arguments_are_refused(files, arguments, error, text):
    with pytest.raises(error, match=text):
        sources.ParquetDataSource(files, **arguments)


def test_files_of_different_columns_are_refused(files, tmp_path):
    other = tmp_path / "z.parquet"
    parquet.write_table(pa.table({"key": ["a"], "half": [1.0]}), other)
    with pytest.raises(ValueError, match=r"column 'key' must be int64, .*got string"):
        sources.ParquetDataSource([*files, str(other)])
    with pytest.raises(ValueError, match=r"z\.parquet: column 'name'.*got missing"):
        sources.ParquetDataSource([*files, str(other)], columns=["name"])
    assert len(sources.ParquetDataSource([*files, str(other)], columns=["half"])) == 101


def test_duplicate_column_names_are_refused(tmp_path):
    path = tmp_path / "twice.parquet"
    parquet.write_table(pa.table([[1], [2]], names=["x", "x"]), path)
    with pytest.raises(ValueError, match=r"different names, got \['x', 'x'\]"):
        sources.ParquetDataSource(path)


@pytest.fixture
def damaged(tmp_path):
    """Write a file of 300 rows in three groups, and damage the second group."""
    path = tmp_path / "flipped.parquet"
    parquet.write_table(
        table(0, 300), path, row_group_size=100, write_page_checksum=True
    )
    group = parquet.read_metadata(path).row_group(1).column(0)
    damaged = bytearray(path.read_bytes())
    damaged[group.data_page_offset + group.total_compressed_size // 2] ^= 0x10
    path.write_bytes(damaged)
    return path


@pytest.mark.claim("Files")
def test_damaged_group_fails_alone_and_is_named(damaged):
    source = sources.ParquetDataSource(damaged)
    assert source[99] == row(99)
    for _ in range(2):
        with pytest.raises(
            gristmill.CorruptRecord, match=r"flipped\.parquet, but .* row group 1"
        ):
            source[100]
    assert source[200] == row(200)


def test_rows_of_damaged_group_are_skipped(damaged, monkeypatch):
    source = sources.ParquetDataSource(damaged)
    read, asked = source._files.read, []

    def counting(group):
        asked.append(group)
        return read(group)

    monkeypatch.setattr(source._files, "read", counting)
    loader = DataLoader(
        data_source=source,
        sampler=GroupShuffleSampler(source.groups, num_epochs=1, seed=1),
        operations=[transforms.Batch(50)],
        on_error="skip",
    )
    keys = [key for batch in loader for key in batch["key"].tolist()]
    assert sorted(keys) == [*range(100), *range(200, 300)]
    # The damaged group is read once, not once per row.
    assert sorted(asked) == [0, 1, 2]


def test_changed_file_is_refused(files):
    source = sources.ParquetDataSource(files)
    assert source[35] == row(35)
    parquet.write_table(table(500, 50), files[1], row_group_size=7)
    with pytest.raises(gristmill.CorruptRecord, match=r"part-1\.parquet: the file has"):
        source[45]
    os.remove(files[2])
    with pytest.raises(FileNotFoundError, match=r"part-2\.parquet, found no"):
        source[99]
    assert source[2] == row(2)


def test_changed_file_at_url_is_refused(files):
    memory = fsspec.filesystem("memory")
    memory.put(files[0], "/gristmill-changing/x.parquet")
    url = "memory://gristmill-changing/x.parquet"
    source = pickle.loads(pickle.dumps(sources.ParquetDataSource(url)))
    assert source[20] == row(20)
    memory.put(files[1], "/gristmill-changing/x.parquet")
    with pytest.raises(gristmill.CorruptRecord, match=r"x\.parquet: the file "):
        source[1]


def test_repr_depends_on_files_and_columns(files):
    source = sources.ParquetDataSource(files)
    assert repr(source) == repr(sources.ParquetDataSource(files))
    assert "rows=100, columns=['key', 'half', 'name'])" in repr(source)
    assert repr(sources.ParquetDataSource(files[:2])) != repr(source)
    assert repr(sources.ParquetDataSource(files, columns=["key"])) != repr(source)


def test_pickled_source_reads_same_rows(files):
    source = sources.ParquetDataSource(files, cache_bytes=1000, columns=["key"])
    source[3]
    pickled = pickle.dumps(source)
    assert len(pickled) < 2000
    again = pickle.loads(pickled)
    assert (repr(again), again[77]) == (repr(source), {"key": 77})
    os.remove(files[0])
    assert len(pickle.loads(pickled)) == 100


@pytest.mark.multiprocess
def test_workers_share_one_import_of_pyarrow(files):
    # Unpickling the source imports pyarrow, and happens before workers are forked.
    pickled = pickle.dumps(sources.ParquetDataSource(files))
    script = (
        f"import pickle, sys; source = pickle.loads({pickled!r});"
        "print('pyarrow.parquet' in sys.modules, len(source), source[1]['key'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "100", "1"]


def test_closed_source_reads_again(files):
    with sources.ParquetDataSource(files) as source:
        assert source[1] == row(1)
    assert source[1] == row(1)


def test_at_most_16_files_are_open_until_close(tmp_path):
    def are_open():
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        files = [os.readlink(link) for link in links if os.path.lexists(link)]
        return sum(file.startswith(str(tmp_path)) for file in files)

    for number in range(40):
        parquet.write_table(table(number, 1), tmp_path / f"{number:02}.parquet")
    with sources.ParquetDataSource(tmp_path, cache_bytes=0) as source:
        assert are_open() == 0
        assert [source[key] for key in range(40)] == [row(key) for key in range(40)]
        assert are_open() == 16
    assert are_open() == 0


def test_cache_keeps_most_recently_used_groups(files, tmp_path):
    one = sources.ParquetDataSource(files)
    bytes_of_a_group = one._files.read(1).nbytes
    source = Counting(files, tmp_path / "log", cache_bytes=5 * bytes_of_a_group // 2)
    for key in (0, 7, 0, 14, 0, 7):
        assert source[key] == row(key)
    assert source.decoded() == [0, 1, 2, 1]


@pytest.mark.parametrize("cache_bytes", [0, 1])
def test_last_group_is_cached_regardless_of_size(files, tmp_path, cache_bytes):
    source = Counting(files, tmp_path / "log", cache_bytes=cache_bytes)
    assert [source[key]["key"] for key in (0, 1, 6, 7, 8, 0)] == [0, 1, 6, 7, 8, 0]
    assert source.decoded() == [0, 1, 0]


def test_cache_counts_bytes_of_objects(tmp_path):
    path = tmp_path / "large.parquet"
    pictures = [bytes([i]) * 500_000 for i in range(20)]
    parquet.write_table(pa.table({"picture": pictures}), path, row_group_size=2)
    source = Counting(path, tmp_path / "log", cache_bytes=2_500_000)
    assert [source[key]["picture"][0] for key in (0, 2, 0, 4, 2)] == [0, 2, 0, 4, 2]
    assert source.decoded() == [0, 1, 2, 1]


def test_group_is_decoded_once_by_all_threads(files, tmp_path):
    source = Counting(files, tmp_path / "log")
    start = threading.Barrier(8)
    found = []

    def read(number):
        start.wait()
        found.extend(source[key]["key"] for key in range(number, 100, 8))

    threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(100))
    assert sorted(source.decoded()) == list(range(16))


def test_threads_waiting_for_failed_decode_get_error(files):
    source = sources.ParquetDataSource(files)
    os.remove(files[0])
    start = threading.Barrier(4)
    errors = []

    def read():
        start.wait()
        with pytest.raises(FileNotFoundError):
            source[0]
        errors.append(1)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 4


def test_forked_child_reads_while_parent_thread_decodes(files, monkeypatch):
    source = sources.ParquetDataSource(files)
    begun, go_on = threading.Event(), threading.Event()

    def decode(group):
        begun.set()
        assert go_on.wait(60)
        raise gristmill.errors.CorruptRecord("as planned")

    def read():
        with pytest.raises(gristmill.errors.CorruptRecord):
            source[0]

    monkeypatch.setattr(source, "_decode", decode)
    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        monkeypatch.undo()
        os._exit(0 if source[0] == row(0) else 1)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_order_with_repeated_decoding_logs_warning(files, caplog):
    source = sources.ParquetDataSource(files, cache_bytes=0)
    for key in np.random.default_rng(0).permutation(100).tolist():
        source[key]
    warnings = [r for r in caplog.records if "GroupShuffleSampler" in r.getMessage()]
    assert len(warnings) == 1
    assert "decoded" in warnings[0].getMessage()


@pytest.fixture(scope="module")
def many_groups(tmp_path_factory):
    """Write a file of 8000 rows in 80 groups, and return its path."""
    path = tmp_path_factory.mktemp("many") / "many.parquet"
    parquet.write_table(table(0, 8000), path, row_group_size=100)
    return str(path)


def amplification(source, keys):
    """Return the number of decoded rows per delivered row."""
    rows = sum(int(source.groups[group]) for group in source.decoded())
    return rows / len(keys)


@pytest.mark.multiprocess
@pytest.mark.parametrize(("workers", "streams"), [(0, 1), (0, 2), (2, 2), (2, 4)])
def test_group_shuffle_decodes_each_group_about_once(
    many_groups, tmp_path, workers, streams
):
    source = Counting(many_groups, tmp_path / "log")
    sampler = GroupShuffleSampler(source.groups, window=8, num_epochs=1, seed=1)
    loader = DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[transforms.Batch(64)],
        worker_count=workers,
        streams=streams,
    )
    keys = [key for batch in loader for key in batch["key"].tolist()]
    assert sorted(keys) == list(range(8000))
    assert keys != sorted(keys)
    assert amplification(source, keys) <= 1.2


@pytest.mark.multiprocess
def test_cache_of_one_window_is_enough(many_groups, tmp_path):
    probe = sources.ParquetDataSource(many_groups)
    window = 9 * probe._files.read(0).nbytes
    source = Counting(many_groups, tmp_path / "log", cache_bytes=window)
    sampler = GroupShuffleSampler(source.groups, window=8, num_epochs=2, seed=1)
    loader = DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[transforms.Batch(64)],
        worker_count=2,
    )
    keys = [key for batch in loader for key in batch["key"].tolist()]
    assert collections.Counter(keys) == dict.fromkeys(range(8000), 2)
    assert amplification(source, keys) <= 1.2


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_loader_resumes_in_the_middle_of_a_window(many_groups, workers):
    source = sources.ParquetDataSource(many_groups, columns=["key", "name"])
    loader = DataLoader(
        data_source=source,
        sampler=GroupShuffleSampler(source.groups, num_epochs=1, seed=1),
        operations=[transforms.Batch(100)],
        worker_count=workers,
    )
    iterator = iter(loader)
    for _ in range(13):
        next(iterator)
    state = iterator.get_state()
    rest = [(b["key"].tolist(), b["name"].tolist()) for b in iterator]
    again = iter(loader)
    again.set_state(state)
    assert [(b["key"].tolist(), b["name"].tolist()) for b in again] == rest
    assert len(rest) == 80 - 13


@pytest.mark.multiprocess
def test_shards_decode_their_own_groups(many_groups, tmp_path):
    found = []
    for shard in range(4):
        source = Counting(many_groups, tmp_path / "log")
        options = sharding.ShardOptions(shard, 4)
        sampler = GroupShuffleSampler(
            source.groups, shard_options=options, num_epochs=1, seed=3
        )
        loader = DataLoader(data_source=source, sampler=sampler, worker_count=0)
        found += [element["key"] for element in loader]
    assert sorted(found) == list(range(8000))
    assert amplification(source, found) <= 1.2


def test_reading_in_order_decodes_each_group_once(many_groups, tmp_path):
    source = Counting(many_groups, tmp_path / "log", cache_bytes=0)
    loader = DataLoader(
        data_source=source,
        sampler=IndexSampler(8000, num_epochs=1),
        operations=[transforms.Batch(64)],
    )
    assert [k for b in loader for k in b["key"].tolist()] == list(range(8000))
    assert source.decoded() == list(range(80))


def test_random_draws_match_index_sampler(many_groups):
    source = sources.ParquetDataSource(many_groups, columns=["key"])
    loaders = [
        DataLoader(data_source=source, sampler=sampler, operations=[Draw()])
        for sampler in (
            GroupShuffleSampler(source.groups, num_epochs=1, seed=5),
            samplers.IndexSampler(8000, num_epochs=1, seed=5),
        )
    ]
    ours, theirs = ([e["draw"] for e in itertools.islice(one, 50)] for one in loaders)
    assert ours == theirs


class Draw(transforms.RandomMap):
    """Adds a random number."""

    def random_map(self, element, rng):
        return {**element, "draw": rng.random()}
