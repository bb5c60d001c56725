"""Tests of the cache of remote files, which must never serve wrong bytes."""

import os
import pathlib
import random
import signal
import subprocess

import numpy as np
import pytest

from faults.scripts import command, environment
from gristmill import _core
from gristmill.errors import RemoteError
from gristmill.sources import ArrayRecordDataSource, RemoteOptions
from gristmill.sources._remote import RemoteFile
from support import range_server

MIB = 1 << 20
BYTES = 40 * MIB
CONTENT = np.random.default_rng(0).bytes(3 * MIB + 12_345)
ORIGIN = (11, 22, len(CONTENT))
PAGE = 4096


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def cache(folder):
    return _core.RangeCache(str(folder), BYTES)


@pytest.fixture
def server():
    with range_server.running() as server:
        server.files["file"] = CONTENT
        yield server


def remote(server, folder, **options):
    return RemoteFile(
        server.url("file"), options=RemoteOptions(cache_dir=folder, **options)
    )


def keep(cache, offset, size, origin=ORIGIN, content=CONTENT):
    begin, count = cache.pages_of(origin, offset, size)
    return cache.write(origin, begin, content[begin : begin + count])


def ranges(count, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        offset = rng.randrange(len(CONTENT))
        yield offset, rng.randrange(1, min(100_000, len(CONTENT) - offset) + 1)


# Reading and writing


def test_any_range_of_cached_bytes_is_served(cache):
    assert keep(cache, 0, len(CONTENT)) == ""
    for offset, size in ranges(300):
        assert cache.read(ORIGIN, offset, size) == CONTENT[offset : offset + size]
    assert cache.read(ORIGIN, 5, 0) == b""


def test_range_with_missing_page_is_not_served(cache):
    keep(cache, 10 * PAGE, 3 * PAGE)
    keep(cache, 14 * PAGE, PAGE)
    assert cache.read(ORIGIN, 10 * PAGE, 3 * PAGE) == CONTENT[10 * PAGE : 13 * PAGE]
    assert cache.read(ORIGIN, 14 * PAGE, PAGE) == CONTENT[14 * PAGE : 15 * PAGE]
    assert cache.read(ORIGIN, 10 * PAGE - 1, 2) is None
    assert cache.read(ORIGIN, 12 * PAGE, PAGE + 1) is None
    assert cache.read(ORIGIN, 13 * PAGE, 2 * PAGE) is None


def test_other_file_version_or_size_is_not_served(cache):
    keep(cache, 0, PAGE)
    assert cache.read(ORIGIN, 0, 100) == CONTENT[:100]
    for other in (12, 22, len(CONTENT)), (11, 23, len(CONTENT)), (11, 22, 5000):
        assert cache.read(other, 0, 100) is None


def test_new_version_replaces_old_version(cache):
    keep(cache, 0, len(CONTENT))
    newer = ORIGIN[0], 23, ORIGIN[2]
    changed = CONTENT[::-1]
    keep(cache, 0, len(CONTENT), newer, changed)
    assert cache.read(newer, 0, len(CONTENT)) == changed
    assert cache.read(ORIGIN, 0, PAGE) is None


def test_partial_page_is_refused(cache):
    with pytest.raises(ValueError, match="must be multiples of 4096"):
        cache.write(ORIGIN, 0, CONTENT[:100])
    with pytest.raises(ValueError, match="bytes must be at least"):
        _core.RangeCache("/none", 100)


# Size


def test_size_never_exceeds_limit(folder):
    cache = _core.RangeCache(str(folder), 20 * MIB)
    for name in range(30):
        keep(cache, 0, len(CONTENT), (name, 1, len(CONTENT)))
    status = os.stat(cache.path)
    assert status.st_size <= 20 * MIB
    assert 10 * MIB < 512 * status.st_blocks <= 20 * MIB
    served = [cache.read((name, 1, len(CONTENT)), 0, PAGE) for name in range(30)]
    assert CONTENT[:PAGE] in served


def test_data_that_fit_are_all_kept(folder):
    cache = _core.RangeCache(str(folder), 300 * MIB)
    names = range(60)  # 4 regions each; the cache has room for 288.
    for name in names:
        keep(cache, 0, len(CONTENT), (name, 1, len(CONTENT)))
    found = [cache.read((n, 1, len(CONTENT)), 0, len(CONTENT)) for n in names]
    assert found == [CONTENT] * 60


def test_data_that_do_not_fit_evict_little(folder):
    cache = _core.RangeCache(str(folder), 20 * MIB)
    for name in range(100, 104):
        keep(cache, 0, len(CONTENT), (name, 1, len(CONTENT)))
    for name in range(40):
        keep(cache, 0, PAGE, (name, 1, len(CONTENT)))
    kept = [
        cache.read((name, 1, len(CONTENT)), MIB * part, PAGE) is not None
        for name in range(100, 104)
        for part in range(3)
    ]
    assert sum(kept) >= 7


def test_repeated_writes_evict_old_data(folder):
    cache = _core.RangeCache(str(folder), 9 * MIB)
    for name in range(8):
        keep(cache, 0, PAGE, (name, 1, MIB))
    for _ in range(200):
        keep(cache, 0, PAGE, (50, 1, MIB))
    assert cache.read((50, 1, MIB), 0, PAGE) == CONTENT[:PAGE]


def test_unused_caches_of_other_sizes_are_removed(folder):
    first = _core.RangeCache(str(folder), 20 * MIB)
    keep(first, 0, PAGE)
    second = _core.RangeCache(str(folder), 40 * MIB)
    assert first.read(ORIGIN, 0, PAGE) == CONTENT[:PAGE]
    assert sorted(map(str, folder.iterdir())) == sorted([first.path, second.path])
    del first
    third = _core.RangeCache(str(folder), 40 * MIB)
    assert third.path == second.path
    assert [str(path) for path in folder.iterdir()] == [third.path]


# Damage


def test_damaged_bytes_are_not_served(cache, folder):
    keep(cache, 0, len(CONTENT))
    with open(cache.path, "r+b") as file:
        size = os.path.getsize(cache.path)
        for at in range(PAGE, size, 50_021):
            file.seek(at)
            file.write(bytes([random.Random(at).randrange(256)]) * 3)
    again = _core.RangeCache(str(folder), BYTES)
    missing = 0
    for offset, size in ranges(300):
        data = again.read(ORIGIN, offset, size)
        missing += data is None
        assert data in (None, CONTENT[offset : offset + size])
    assert 0 < missing < 300
    keep(again, 0, len(CONTENT))
    assert again.read(ORIGIN, 0, len(CONTENT)) == CONTENT


@pytest.mark.parametrize("damage", ["empty", "short", "noise"])
def test_invalid_cache_file_is_rebuilt(folder, damage):
    cache = _core.RangeCache(str(folder), BYTES)
    path = pathlib.Path(cache.path)
    del cache
    if damage == "noise":
        with open(path, "r+b") as file:
            file.write(CONTENT[:PAGE])
    else:
        os.truncate(path, 0 if damage == "empty" else BYTES // 2)
    again = _core.RangeCache(str(folder), BYTES)
    keep(again, 0, PAGE)
    assert again.read(ORIGIN, 0, PAGE) == CONTENT[:PAGE]


# Files at URLs


def test_cached_ranges_are_not_requested_again(server, folder):
    first = remote(server, folder)
    for offset, size in ranges(40):
        assert first.read_range(offset, size) == CONTENT[offset : offset + size]
    server.gets.clear()
    second = remote(server, folder)
    for offset, size in ranges(40):
        assert second.read_range(offset, size) == CONTENT[offset : offset + size]
    assert server.gets == []


def test_new_version_is_read_from_server(server, folder):
    assert remote(server, folder).read_range(0, PAGE) == CONTENT[:PAGE]
    server.files["file"] = CONTENT[::-1]
    server.tags["file"] = '"two"'
    newer = remote(server, folder)
    assert newer.read_range(0, PAGE) == CONTENT[::-1][:PAGE]


def test_bytes_of_replaced_file_are_not_cached(server, folder):
    file = remote(server, folder)
    server.files["file"], server.tags["file"] = CONTENT[::-1], '"two"'
    with pytest.raises(RemoteError, match="was replaced while it was open"):
        file.read_range(0, 4)
    fetch = file.fetch([(file, 0, 4096)])
    [(_, answer)] = fetch.take()
    assert isinstance(answer, RemoteError)
    server.files["file"], server.tags["file"] = CONTENT, '"one"'
    assert remote(server, folder).read_range(0, 4) == CONTENT[:4]


def test_cached_records_are_served_in_another_order(server, folder, tmp_path):
    from array_record.python import array_record_module

    records = [np.random.default_rng(i).bytes(20_000 + i) for i in range(60)]
    writer = array_record_module.ArrayRecordWriter(str(tmp_path / "r"), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()
    server.files["records"] = (tmp_path / "r").read_bytes()
    options = RemoteOptions(cache_dir=folder, gap_bytes=0, tail_bytes=70_000)

    def read(seed):
        source = ArrayRecordDataSource(server.url("records"), remote_options=options)
        order = np.random.default_rng(seed).permutation(60)
        for keys in np.split(order, 4):
            assert source.__getitems__(keys) == [records[i] for i in keys]
        assert source[7] == records[7]

    read(0)
    assert len(server.gets) > 40
    server.gets.clear()
    read(1)
    assert server.gets == []


def test_files_of_unknown_version_are_not_cached(server, folder, monkeypatch):
    file = remote(server, folder)
    monkeypatch.setattr(file, "_stamp", {})
    assert file.cache is None
    assert file.read_range(0, 10) == CONTENT[:10]
    assert not folder.exists()


def test_unusable_folder_is_logged_once(server, caplog):
    for _ in range(3):
        file = remote(server, "/proc/none/here")
        assert file.read_range(5, 10) == CONTENT[5:15]
    (record,) = caplog.records
    assert "cache_dir='/proc/none/here' cannot be used" in record.message


# Other processes


def run(*arguments):
    return subprocess.Popen(
        command("remote/cache", *arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.multiprocess
def test_killed_writer_leaves_valid_cache(folder):
    for seed in range(4):
        writer = run("write", folder, seed)
        for _ in range(1 + 40 * seed):
            assert writer.stdout.readline() == "kept\n"
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        reader = run("check", folder, seed)
        out, errors = reader.communicate(timeout=60)
        assert (out, errors) == ("right\n", "")


@pytest.mark.multiprocess
def test_processes_share_a_cache_at_the_same_time(folder):
    together = [run("both", folder, seed) for seed in range(3)]
    for process in together:
        assert process.communicate(timeout=60) == ("right\n", "")


@pytest.mark.multiprocess
def test_full_disk_stops_caching_with_one_warning(server, folder):
    reader = run("full", folder, server.url("file"))
    out, errors = reader.communicate(timeout=60)
    assert out == "right\n"
    assert errors.count("is not cached on this machine") == 1
    assert "write failed" in errors


@pytest.mark.multiprocess
def test_read_only_cache_serves_its_data(folder):
    keep(_core.RangeCache(str(folder), BYTES), 0, MIB)
    reader = run("read_only", folder, 0)
    assert reader.communicate(timeout=60) == ("served\nnot kept\n", "")


def test_cache_options_are_checked(folder):
    assert RemoteOptions(cache_dir=folder).cache_dir == str(folder)
    with pytest.raises(TypeError):
        RemoteOptions(cache_dir=7)
    with pytest.raises(ValueError, match=r"cache_bytes must be at least .*got 5"):
        RemoteOptions(cache_bytes=5)


@pytest.mark.parametrize("wrong", [{"cache_dir": ""}, {"cache_bytes": 1 << 63}])
def test_invalid_cache_options_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        RemoteOptions(**wrong)


def test_folder_name_may_have_any_bytes(server, tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xff"
    file = remote(server, folder)
    assert file.read_range(5, 9) == CONTENT[5:14]
    server.files.clear()
    assert file.read_range(5, 9) == CONTENT[5:14]
