"""Tests of fetching ranges of remote files together and ahead of use."""

import asyncio
import collections
import signal
import threading

import fsspec
import numpy as np
import pytest
from array_record.python import array_record_module

import gristmill as gm
from gristmill import _core
from gristmill.errors import CorruptRecord, RemoteError
from gristmill.sources import RemoteOptions, _share
from gristmill.sources._remote import RemoteFile
from gristmill.sources._requests import HostRequests, requests_of
from support import range_server

# 256 records of 5 kB.
RECORDS = [np.random.default_rng(i).bytes(5_000 + i) for i in range(256)]


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("content") / "file")
    writer = array_record_module.ArrayRecordWriter(path, "group_size:1,uncompressed")
    for record in RECORDS:
        writer.write(record)
    writer.close()
    with open(path, "rb") as file:
        return file.read()


@pytest.fixture
def server(content):
    with range_server.running() as server:
        server.files["file"] = content
        yield server


def source_of(server, **options):
    remote = RemoteOptions(tail_bytes=70_000, **options)
    return gm.sources.ArrayRecordDataSource(server.url("file"), remote_options=remote)


def loaded(source, sampler, **options):
    loader = gm.DataLoader(data_source=source, sampler=sampler, **options)
    return list(loader)


# Requests made by loaders


def test_records_of_window_need_few_requests(server):
    source = source_of(server, gap_bytes=5_500, run_bytes=1 << 20)
    sampler = gm.samplers.GroupShuffleSampler([16] * 16, window=4, num_epochs=1, seed=3)
    order = sampler.record_keys(0, 1, 256)
    server.gets.clear()
    iterator = iter(gm.DataLoader(data_source=source, sampler=sampler))
    iterator.start_prefetch()
    assert list(iterator) == [RECORDS[i] for i in order]
    # A window is 4 ranges of 16 adjacent records each.
    assert len(server.gets) <= 2 * 16
    sizes = [last + 1 - first for _, first, last in server.gets]
    assert sum(sizes) < 1.1 * len(server.files["file"])


@pytest.mark.parametrize("prefetched", [True, False])
@pytest.mark.parametrize("window", [1, 3, 1000])
def test_window_size_does_not_change_records(server, window, prefetched):
    source = source_of(server)
    sampler = gm.samplers.GroupShuffleSampler(
        [7] * 36 + [4], window=window, num_epochs=2, seed=5
    )
    order = sampler.record_keys(0, 1, 512)
    iterator = iter(gm.DataLoader(data_source=source, sampler=sampler))
    if prefetched:
        iterator.start_prefetch()
    assert list(iterator) == [RECORDS[i] for i in order]


def test_state_within_window_resumes(server):
    source = source_of(server)
    sampler = gm.samplers.GroupShuffleSampler([8] * 32, window=8, num_epochs=1, seed=5)
    order = sampler.record_keys(0, 1, 256)
    iterator = iter(gm.DataLoader(data_source=source, sampler=sampler))
    for _ in range(30):
        next(iterator)
    state = iterator.get_state()
    for _ in range(80):
        next(iterator)
    iterator.set_state(state)
    assert list(iterator) == [RECORDS[i] for i in order[30:]]


def test_sequential_records_need_few_requests(server):
    source = source_of(server, run_bytes=1 << 20)
    server.gets.clear()
    assert loaded(source, gm.SequentialSampler(256)) == RECORDS
    assert len(server.gets) <= 8


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_read_ahead_in_their_own_streams(server, workers):
    source = source_of(server)
    sampler = gm.IndexSampler(256, shuffle=True, num_epochs=1, seed=1)
    order = [sampler[i].record_key for i in range(256)]
    operations = [gm.Batch(8, batch_fn=list)]
    batches = loaded(source, sampler, operations=operations, worker_count=workers)
    expected = [
        RECORDS[i]
        for first in range(0, 256, 8 * workers)
        for worker in range(workers)
        for i in order[first + worker : first + 8 * workers : workers]
    ]
    assert [record for batch in batches for record in batch] == expected
    assert len(server.gets) < 40


def test_bad_records_of_long_block_are_skipped_singly(server, content):
    file = _core.RecordFile(Memory(content))
    begins = [file.chunk(i)[0] for i in (3, 20)]
    damaged = bytearray(content)
    for begin in begins:
        damaged[begin + 100] ^= 1
    source = source_of(server)
    server.files["file"] = bytes(damaged)
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.SequentialSampler(256),
        on_error="skip",
        max_errors=2,
    )
    good = [r for i, r in enumerate(RECORDS) if i not in (3, 20)]
    assert list(loader) == good


# Number of pending requests


class Counting(threading.Barrier):
    """Replaces the barrier of the server, and counts GET requests that wait at once.

    Requests wait until `expected` wait at once, and a moment more for others.
    """

    def __init__(self, expected):
        self.expected = expected
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.is_reached = threading.Event()
        self.never = threading.Event()

    def wait(self, timeout=None):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.most >= self.expected:
                self.is_reached.set()
        self.is_reached.wait(60)
        self.never.wait(0.02)
        with self.lock:
            self.now -= 1


@pytest.mark.parametrize("parallel", [2, 5])
def test_pending_requests_do_not_exceed_parallel(server, parallel):
    source = source_of(server, parallel=parallel, gap_bytes=0)
    assert source[0] == RECORDS[0]  # Reads the index, by one request after another.
    server.barrier = Counting(parallel)
    keys = np.random.default_rng(0).permutation(256)[:60]
    assert source.__getitems__(keys) == [RECORDS[i] for i in keys]
    assert server.barrier.most == parallel


def test_processes_of_a_loader_share_request_limit():
    assert _share.processes() == 1
    try:
        _share.share_among(3)
        assert requests_of("http://three", 100)._request_limit._max_limit == 33
        assert requests_of("http://three", 2)._request_limit._max_limit == 1
    finally:
        _share.share_among(1)
    assert requests_of("http://three", 100)._request_limit._max_limit == 100
    assert requests_of("http://three", 100) is requests_of("http://three", 100)


def test_threads_of_sync_file_systems_wait_for_turns(content):
    url = "memory://fetching/file"
    with fsspec.open(url, "wb") as file:
        file.write(content)
    # More threads than the initial number of turns.
    options = RemoteOptions(gap_bytes=0, parallel=60)
    source = gm.sources.ArrayRecordDataSource(url, remote_options=options)
    every = np.random.default_rng(4).permutation(256)[:200]
    for _ in range(3):
        assert source.__getitems__(every) == [RECORDS[i] for i in every]
    fsspec.filesystem("memory").store.clear()


def test_nested_file_systems_read_like_their_targets(server, content, tmp_path):
    with fsspec.open("memory://fetching/file", "wb") as file:
        file.write(content)
    folder = {"path": "/fetching", "target_protocol": "memory"}
    kept = {"simplecache": {"cache_storage": str(tmp_path)}}
    server.gets.clear()
    cached = "simplecache::" + server.url("file")
    every = np.random.default_rng(4).permutation(256)[:100]
    for url, options in [("dir://file", folder), (cached, kept)]:
        source = gm.sources.ArrayRecordDataSource(url, storage_options=options)
        assert source.__getitems__(every) == [RECORDS[i] for i in every]
    assert {*server.gets} == {("file", None, None)}
    fsspec.filesystem("memory").store.clear()


def test_interrupted_turn_is_given_to_others():
    requests = HostRequests(1)
    begun = requests.wait_for_turn()

    def interrupt():
        while not requests._waiting:
            threading.Event().wait(0.001)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        requests.wait_for_turn()
    interrupter.join()
    requests.end(begun, 10)
    requests.end(requests.wait_for_turn(), 10)
    assert requests._request_limit.in_flight == 0


def test_request_ended_by_thread_wakes_loop(server):
    file = RemoteFile(server.url("file"), options=RemoteOptions(parallel=2))
    # In debug mode, the loop refuses calls from other threads.
    file.loop.set_debug(True)
    try:
        turns = [file.requests.wait_for_turn() for _ in range(2)]
        fetch = file.fetch([(file, 0, 10)])
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), file.loop).result()
        for begun in turns:
            file.requests.end(begun, 10)
        assert fetch.take() == [(0, server.files["file"][:10])]
    finally:
        file.loop.set_debug(False)


def test_cancelled_request_is_retried(server):
    options = RemoteOptions(first_delay_s=0)
    file = RemoteFile(server.url("file"), options=options)
    server.gate = threading.Event()
    fetch = file.fetch([(file, 0, 10)])

    async def cancel():
        while not (tasks := asyncio.all_tasks() - {asyncio.current_task()}):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    asyncio.run_coroutine_threadsafe(cancel(), file.loop).result()
    server.gate.set()
    assert fetch.take() == [(0, server.files["file"][:10])]
    assert file.requests._request_limit.in_flight == 0


@pytest.mark.parametrize("fault", [503, "reset", "cut"])
def test_failed_ranges_are_retried(server, fault):
    file = RemoteFile(server.url("file"), options=RemoteOptions(first_delay_s=0))
    content = server.files["file"]
    server.faults.extend([fault] * 4)
    fetch = file.fetch([(file, at, 3_000) for at in (0, 50_000, 9_000)])
    came = fetch.take()
    assert sorted(came) == [
        (0, content[:3_000]),
        (1, content[50_000:53_000]),
        (2, content[9_000:12_000]),
    ]
    assert file.requests._request_limit.in_flight == 0


@pytest.mark.parametrize("cached", [False, True])
def test_slow_requests_time_out(server, tmp_path, cached):
    cache_dir = str(tmp_path) if cached else None
    options = RemoteOptions(
        timeout_s=0.05, attempts=2, first_delay_s=0, cache_dir=cache_dir
    )
    file = RemoteFile(server.url("file"), options=options)
    server.gets.clear()
    server.gate = threading.Event()
    ((number, error),) = file.fetch([(file, 0, 10)]).take()
    assert number == 0
    assert str(error) == (
        f"{server.url('file')}: reading bytes 0 to 9 failed at 2 attempts:"
        " TimeoutError: no answer within 0.05 s"
    )
    with pytest.raises(RemoteError, match="failed at 2 attempts: "):
        file.read_range(0, 10)
    server.gate.set()
    assert len(server.gets) == 4
    assert file.requests._request_limit.in_flight == 0


# Readers defined in Python


class Memory:
    """Reads from the given bytes, and fetches all ranges at once."""

    path = "somewhere"
    gap_bytes, run_bytes, tail_bytes, parallel = 0, 1 << 20, 0, 8
    fetches = True

    def __init__(self, content):
        self.content = content
        self.size = len(content)
        self.fetched = []
        self.closed = 0

    def read_range(self, offset, size):
        return self.content[offset : offset + size]

    def change(self):
        return ""

    def fetch(self, ranges):
        self.fetched.append([(offset, size) for _, offset, size in ranges])
        return Pending(self, ranges)


class Pending:
    """Returns ranges in reverse order, two at a time."""

    def __init__(self, memory, ranges):
        self.memory = memory
        self.left = collections.deque(enumerate(ranges))

    def take(self):
        found = []
        while self.left and len(found) < 2:
            number, (file, offset, size) = self.left.pop()
            found.append((number, self.answer(file, offset, size)))
        return found

    def answer(self, file, offset, size):
        return file.read_range(offset, size)

    def close(self):
        self.memory.closed += 1


def test_ranges_may_come_in_any_order(content):
    memory = Memory(content)
    file = _core.RecordFile(memory)
    keys = np.arange(0, 40, 2)
    assert file.read_many(keys) == RECORDS[:40:2]
    assert _core.PendingRead(_core.Pool(1), file, keys).wait() == RECORDS[:40:2]
    assert [len(ranges) for ranges in memory.fetched] == [20, 20]
    assert memory.closed == 2
    every = np.random.default_rng(2).permutation(256)
    assert file.read_many(every) == [RECORDS[i] for i in every]


def test_files_of_set_are_fetched_together(content):
    memories = [Memory(content) for _ in range(3)]
    files = [_core.RecordFile(memory) for memory in memories]
    records = _core.RecordSet("set", [(0, 256)] * 3, lambda parts: [])
    for part, file in enumerate(files):
        records.open_part(part, file)
    keys = np.array([5, 600, 300, 7, 260])
    expected = [RECORDS[i % 256] for i in keys]
    assert records.read_many(keys) == expected
    assert sum(len(memory.fetched) for memory in memories) == 1


class Unlucky(Exception):
    pass


def test_error_of_range_is_raised_unchanged(content, monkeypatch):
    memory = Memory(content)
    file = _core.RecordFile(memory)
    bad = {file.chunk(i)[0] for i in (10, 30)}

    def answer(self, reader, offset, size):
        return Unlucky(offset) if offset in bad else reader.read_range(offset, size)

    monkeypatch.setattr(Pending, "answer", answer)
    for _ in range(5):
        with pytest.raises(Unlucky) as caught:
            file.read_many(np.arange(0, 40, 2))
        assert caught.value.args == (file.chunk(10)[0],)
        assert caught.value.__notes__ == ["while reading somewhere: record 10"]


@pytest.mark.parametrize(
    ("take", "kind"),
    [
        (lambda self: [(0, b"short")], ValueError),
        (lambda self: [(0, None)], ValueError),
        (lambda self: [(99, b"")], IndexError),
        (lambda self: [17], TypeError),
        (lambda self: None, TypeError),
        (lambda self: 1 / 0, ZeroDivisionError),
    ],
)
def test_wrong_answers_are_refused(content, monkeypatch, take, kind):
    memory = Memory(content)
    file = _core.RecordFile(memory)
    monkeypatch.setattr(Pending, "take", take)
    with pytest.raises(kind):
        file.read_many(np.arange(0, 40, 2))
    assert memory.closed == 1


def test_error_of_fetch_is_raised(content, monkeypatch):
    file = _core.RecordFile(Memory(content))
    monkeypatch.setattr(Memory, "fetch", lambda self, ranges: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        file.read_many(np.arange(0, 40, 2))


def test_damaged_record_is_named(content):
    memory = Memory(content)
    file = _core.RecordFile(memory)
    begin = file.chunk(12)[0]
    memory.content = content[: begin + 90] + b"?" + content[begin + 91 :]
    with pytest.raises(CorruptRecord, match="record 12"):
        file.read_many(np.arange(0, 40, 2))
