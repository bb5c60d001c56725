"""Tests of record files at URLs, compared with the same records in memory."""

import _thread
import errno
import itertools
import os
import pickle
import subprocess
import sys
import threading
import types
import weakref

import fsspec
import numpy as np
import pytest
from array_record.python import array_record_module
from fsspec.registry import known_implementations

import gristmill as gm
from faults.scripts import command, environment
from gristmill import _core
from gristmill._base.retries import delay_s, is_transient, status_of
from gristmill.errors import CorruptRecord, RemoteError
from gristmill.sources._record_files import open_file
from gristmill.sources._remote import RemoteFile
from gristmill.sources._remote_options import RemoteOptions
from gristmill.sources._urls import is_url
from support import range_server

BLOCK = 65536
# 40 records of 20 kB take about 13 blocks. SMALL_TAIL covers one of them.
RECORDS = [np.random.default_rng(i).bytes(20_000 + i) for i in range(40)]
SMALL_TAIL = RemoteOptions(tail_bytes=BLOCK + 1024, gap_bytes=4096)


def written(tmp_path, records, options="group_size:1,uncompressed"):
    path = str(tmp_path / "written")
    writer = array_record_module.ArrayRecordWriter(path, options)
    for record in records:
        writer.write(record)
    writer.close()
    with open(path, "rb") as file:
        return file.read()


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    return written(tmp_path_factory.mktemp("content"), RECORDS)


@pytest.fixture
def server(content):
    with range_server.running() as server:
        server.files["file"] = content
        yield server


@pytest.fixture
def sleeps():
    return []


@pytest.fixture
def remote(server, sleeps):
    """Return a function that opens the server's file and records sleeps."""

    def make(options=SMALL_TAIL, name="file"):
        return RemoteFile(server.url(name), options=options, sleep=sleeps.append)

    return make


@pytest.fixture
def memory(content):
    url = "memory://remote/file"
    with fsspec.open(url, "wb") as file:
        file.write(content)
    yield url
    fsspec.filesystem("memory").store.clear()


def ints(values):
    return np.asarray(values, np.int64)


# Reading


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
@pytest.mark.parametrize("group", [1, 7])
@pytest.mark.parametrize("pad", [False, True])
def test_remote_file_matches_local_file(server, tmp_path, codec, group, pad):
    padding = ",pad_to_block_boundary:true" * pad
    options = f"group_size:{group},{codec}{padding}"
    server.files["other"] = written(tmp_path, RECORDS, options)
    file = open_file(server.url("other"), remote_options=SMALL_TAIL)
    order = np.random.default_rng(0).permutation(40)
    expected = [RECORDS[i] for i in order]
    assert len(file) == 40
    assert file.path == server.url("other")
    assert file.read_many(order) == expected
    assert [file.read(i) for i in (39, 0)] == [RECORDS[39], RECORDS[0]]
    assert file.sizes(order).tolist() == [len(record) for record in expected]
    data, offsets = file.read_many(order, packed=True)
    assert data.tobytes() == b"".join(expected)
    assert np.diff(offsets).tolist() == [len(record) for record in expected]
    assert _core.PendingRead(_core.Pool(1), file, order).wait() == expected
    assert file.read_many(ints([])) == []


def test_any_fsspec_file_system_is_read(memory, content, tmp_path):
    assert open_file(memory).read_many(np.arange(40)) == RECORDS
    (tmp_path / "file").write_bytes(content)
    url = f"local://{tmp_path}/file"
    local = RemoteFile(url)
    assert local.read_range(100, 50) == content[100:150]
    assert _core.RecordFile(local).read_many(np.arange(40)) == RECORDS
    for name in url, f"file://{tmp_path}/file", tmp_path / "file":
        assert open_file(name, access="mmap").read(3) == RECORDS[3]


def test_file_systems_without_ranges_do_not_read_ahead(content):
    fetched = []

    class Opened(fsspec.spec.AbstractBufferedFile):
        def _fetch_range(self, start, end):
            fetched.append((start, end))
            return content[start:end]

    class FileSystem(fsspec.AbstractFileSystem):
        protocol = "ahead"

        def _open(self, path, mode="rb", **options):
            return Opened(self, path, mode, **options)

        def info(self, path, **_):
            return {"name": path, "size": len(content), "type": "file"}

    fsspec.register_implementation("ahead", FileSystem, clobber=True)
    file = RemoteFile("ahead://file")
    assert file.read_range(1000, 10) == content[1000:1010]
    assert fetched == [(1000, 1010)]


def test_index_within_tail_takes_one_request(server, remote, content):
    file = _core.RecordFile(remote())
    assert (len(server.heads), len(server.gets)) == (
        1,
        2,
    )  # The index exceeds the tail.
    assert file.read(7) == RECORDS[7]
    server.gets.clear()
    file = _core.RecordFile(remote(RemoteOptions()))
    assert server.gets == [("file", len(content) - (512 << 10), len(content) - 1)]
    assert file.read(7) == RECORDS[7]


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_long_indices_take_two_requests(server, remote, tmp_path, codec):
    records = [b"%d" % (i * i) for i in range(60_000)]
    server.files["long"] = written(tmp_path, records, f"group_size:1,{codec}")
    file_size = len(server.files["long"])
    for tail in 0, 1, BLOCK, 2 * BLOCK + 17:
        server.gets.clear()
        file = _core.RecordFile(remote(RemoteOptions(tail_bytes=tail), "long"))
        assert file.sizes(np.arange(60_000)).tolist() == list(map(len, records))
        if tail >= BLOCK:
            assert len(server.gets) == 2
            _, footer, _, _ = file.chunk(59_999)
            asked = sum(last + 1 - first for _, first, last in server.gets)
            assert asked == file_size - footer


def test_adjacent_records_are_read_by_one_request(server, remote):
    near = RemoteOptions(gap_bytes=50_000, run_bytes=1 << 20)
    file = _core.RecordFile(remote(near))
    server.gets.clear()
    # There are two records of 20 kB in the first gap, three in the second.
    assert file.read_many(ints([5, 6, 7, 10, 14])) == [
        RECORDS[i] for i in (5, 6, 7, 10, 14)
    ]
    assert len(server.gets) == 2
    whole = _core.RecordFile(remote(RemoteOptions(run_bytes=200_000)))
    server.gets.clear()
    assert whole.read_many(np.arange(40)) == RECORDS
    sizes = [last + 1 - first for _, first, last in server.gets]
    assert 4 <= len(sizes) <= 10
    assert max(sizes) <= 200_000
    assert sum(sizes) < 1_000_000


@pytest.mark.parametrize("way", ["read_many", "pool"])
def test_requests_run_in_parallel(server, remote, way):
    file = _core.RecordFile(remote())
    keys = ints([0, 5, 10, 15, 20, 25, 30, 35])
    server.barrier = threading.Barrier(len(keys), timeout=60)
    if way == "read_many":
        data, _ = file.read_many(keys, packed=True)
        assert data.tobytes() == b"".join(RECORDS[i] for i in keys)
    else:
        assert _core.PendingRead(_core.Pool(1), file, keys).wait()[1] == RECORDS[5]
    assert not server.barrier.broken


def test_parallel_requests_do_not_exceed_limit(content):
    class Counting(MemoryReader):
        parallel = 3
        now = most = 0
        lock = threading.Lock()
        met = threading.Barrier(3)

        def read_range(self, offset, size):
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            self.met.wait(60)
            with self.lock:
                self.now -= 1
            return super().read_range(offset, size)

    reader = Counting(content)
    reader.met = threading.Barrier(1)
    file = _core.RecordFile(reader)
    reader.met = threading.Barrier(3)
    assert file.read_many(np.arange(0, 36, 2)) == RECORDS[:36:2]
    assert reader.most == 3


def test_eight_threads_share_a_file(server, remote):
    file = _core.RecordFile(remote())
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(3):
            order = rng.integers(0, 40, 6)
            if file.read_many(order) != [RECORDS[i] for i in order]:
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# Transient failures


@pytest.mark.parametrize("fault", [408, 429, 500, 502, 503, 504, "cut"])
def test_server_or_network_failure_is_retried(server, remote, sleeps, fault):
    file = _core.RecordFile(remote())
    server.gets.clear()
    server.faults.extend([fault, None])
    assert file.read(12) == RECORDS[12]
    assert len(server.gets) == 2
    assert len(sleeps) == 1
    assert 0 <= sleeps[0] <= 0.1


def test_closed_connection_is_retried(server, remote, sleeps):
    file = _core.RecordFile(remote())
    server.gets.clear()
    server.faults.extend(["reset"] * 4)  # The client also retries once.
    assert file.read(12) == RECORDS[12]
    assert len(server.gets) == 5
    assert 1 <= len(sleeps) <= 4


def test_slow_attempts_time_out(server, remote, sleeps):
    file = remote()
    # Opening the file may take longer than this time.
    file._options = RemoteOptions(timeout_s=0.05, attempts=2)
    server.gate = threading.Event()
    with pytest.raises(RemoteError, match="failed at 2 attempts: "):
        file.read_range(0, 10)
    assert len(sleeps) == 1
    server.gate.set()


def test_read_fails_after_maximum_attempts(server, remote, sleeps):
    options = RemoteOptions(attempts=4, first_delay_s=3, most_delay_s=7)
    file = _core.RecordFile(remote(options))
    server.gets.clear()
    server.faults.extend([503] * 4)
    with pytest.raises(RemoteError) as caught:
        file.read(12)
    assert len(server.gets) == 4
    _, first, last = server.gets[0]
    assert str(caught.value).startswith(
        f"{server.url('file')}: reading bytes {first} to {last} failed at 4 attempts:"
        " ClientResponseError: 503"
    )
    assert caught.value.__notes__ == [f"while reading {server.url('file')}: record 12"]
    assert caught.value.__cause__.status == 503
    for sleep, longest in zip(sleeps, (3, 6, 7), strict=True):
        assert 0 <= sleep <= longest
    assert file.read(12) == RECORDS[12]


def test_opening_is_retried(server, remote, sleeps):
    server.faults.extend([503])
    assert _core.RecordFile(remote()).read(0) == RECORDS[0]
    assert len(sleeps) == 1


def test_retry_waits_for_time_given_by_server(server, remote, sleeps):
    file = remote()
    server.headers["Retry-After"] = "5"
    server.faults.append(429)
    file.read_range(0, 10)
    server.headers["Retry-After"] = "3600"
    server.faults.append(503)
    file.read_range(0, 10)
    assert sleeps == [5, 10]


def test_delays_double_up_to_a_limit():
    error = ConnectionError()
    delays = {
        attempt: [delay_s(error, attempt, 0.1, 10.0) for _ in range(300)]
        for attempt in (1, 2, 7, 8, 2000)
    }
    for attempt, longest in {1: 0.1, 2: 0.2, 7: 6.4, 8: 10, 2000: 10}.items():
        assert 0 <= min(delays[attempt]) < longest / 2 < max(delays[attempt]) <= longest


# Permanent failures


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RemoteError),
        (401, PermissionError),
        (403, PermissionError),
        (404, FileNotFoundError),
        (416, RemoteError),
    ],
)
def test_permanent_errors_are_raised_at_the_first_attempt(
    server, remote, sleeps, status, kind
):
    file = _core.RecordFile(remote())
    server.gets.clear()
    server.faults.append(status)
    with pytest.raises(kind) as caught:
        file.read(3)
    assert type(caught.value) is kind
    assert f"{server.url('file')}: reading bytes" in str(caught.value)
    assert "failed at the first attempt" in str(caught.value)
    assert len(server.gets) == 1
    assert sleeps == []
    assert file.read(3) == RECORDS[3]


def test_missing_files_are_not_retried(server, sleeps):
    with pytest.raises(FileNotFoundError, match="none: reading its size failed at the"):
        RemoteFile(server.url("none"), sleep=sleeps.append)
    with pytest.raises(FileNotFoundError, match="memory://none: reading its size fail"):
        open_file("memory://none")
    assert sleeps == []


def test_directories_are_refused(memory):
    with pytest.raises(
        IsADirectoryError, match=r"memory://remote: .*found a directory"
    ):
        open_file("memory://remote")


def test_servers_without_ranges_are_refused(server, remote):
    file = remote()
    server.serves_ranges = False
    with pytest.raises(RemoteError, match=r"expected 10 bytes, .* support range"):
        file.read_range(0, 10)


def test_servers_without_sizes_are_refused(server, remote):
    server.serves_sizes = False
    with pytest.raises(RemoteError, match="expected the size of the file, found none"):
        remote()


# Files that change


def test_truncation_while_open_is_reported(server, remote, content, sleeps):
    file = _core.RecordFile(remote())
    server.files["file"] = content[: 2 * BLOCK]
    with pytest.raises(RemoteError) as caught:
        file.read(39)
    assert f"it has {2 * BLOCK} bytes now, {len(content)} when" in str(caught.value)
    with pytest.raises(RemoteError, match=r"expected .* bytes, found .* bytes now"):
        file.read(6)  # Its range begins in the remaining part.
    assert file.read(0) == RECORDS[0]
    assert sleeps == []


def test_replacement_while_open_is_reported(server, remote, content):
    file = _core.RecordFile(remote())
    server.files["file"] = content[::-1]
    server.tags["file"] = '"two"'
    with pytest.raises(CorruptRecord) as caught:
        file.read(5)
    assert str(caught.value).startswith(f"{server.url('file')}: record 5: ")
    assert """its ETag is '"two"', '"one"' when it was opened""" in str(caught.value)
    server.files["file"] = content
    assert file.read(5) == RECORDS[5]


def test_removal_while_open_is_reported(memory):
    file = open_file(memory)
    fsspec.filesystem("memory").rm(memory)
    with pytest.raises(FileNotFoundError, match="the file is gone"):
        file.read(5)


def test_growth_while_open_is_allowed(memory, content):
    file = open_file(memory)
    with fsspec.open(memory, "wb") as out:
        out.write(content + b"more")
    assert file.read_many(np.arange(40)) == RECORDS
    with pytest.raises(CorruptRecord, match="expected a multiple of 65536"):
        open_file(memory)


# Readers defined in Python


class MemoryReader:
    """Reads from the given bytes."""

    path = "somewhere"
    gap_bytes, run_bytes, tail_bytes, parallel = 0, 1 << 20, 0, 8

    def __init__(self, content):
        self.content = content
        self.size = len(content)

    def read_range(self, offset, size):
        return self.content[offset : offset + size]

    def change(self):
        return ""


class Unlucky(Exception):
    pass


@pytest.mark.parametrize("records", [[4], [4, 8, 12]])
def test_reader_errors_are_raised_unchanged(content, records):
    class Failing(MemoryReader):
        fails = False

        def read_range(self, offset, size):
            if self.fails:
                try:
                    raise KeyError("reason")
                except KeyError as error:
                    raise Unlucky(17) from error
            return super().read_range(offset, size)

    reader = Failing(content)
    file = _core.RecordFile(reader)
    reader.fails = True
    for read in (
        lambda: file.read_many(ints(records)),
        _core.PendingRead(_core.Pool(1), file, ints(records)).wait,
    ):
        with pytest.raises(Unlucky) as caught:
            read()
        assert caught.value.args == (17,)
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.__notes__ == ["while reading somewhere: record 4"]
        assert "read_range" in [entry.name for entry in caught.traceback]
    reader.fails = False
    assert file.read_many(ints(records)) == [RECORDS[i] for i in records]
    reader.fails = True
    with pytest.raises(Unlucky) as caught:
        _core.RecordFile(reader)
    assert not hasattr(caught.value, "__notes__")


def test_first_record_that_fails_is_named(content):
    class Failing(MemoryReader):
        bad = range(0)

        def read_range(self, offset, size):
            if offset in self.bad:
                raise Unlucky(offset)
            return super().read_range(offset, size)

    reader = Failing(content)
    file = _core.RecordFile(reader)
    begins = [file.chunk(i)[0] for i in range(40)]
    reader.bad = {begins[i] for i in (21, 23, 33)}
    for _ in range(20):
        with pytest.raises(Unlucky) as caught:
            file.read_many(np.arange(1, 40, 2))
        assert caught.value.args == (begins[21],)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (bytearray(8), TypeError, r"read_range\(.*\) returned bytearray, expected"),
        (None, TypeError, r"read_range\(.*\) returned NoneType, expected bytes"),
        (b"short", ValueError, r"read_range\(.*\) returned 5 bytes"),
    ],
)
def test_wrong_results_of_reader_are_refused(content, answer, kind, text):
    class Wrong(MemoryReader):
        def read_range(self, offset, size):
            return answer

    with pytest.raises(kind, match=text):
        _core.RecordFile(Wrong(content))


def test_invalid_reader_is_refused():
    with pytest.raises(TypeError, match=r"a path or have read_range\(\), got int"):
        _core.RecordFile(17)
    reader = MemoryReader(b"")
    reader.parallel = 0
    with pytest.raises(ValueError, match="run_bytes and parallel must be at least 1"):
        _core.RecordFile(reader)


@pytest.mark.parametrize("waits", [True, False])
def test_readers_are_released(content, waits):
    reader = MemoryReader(content)
    gone = threading.Event()
    weakref.finalize(reader, gone.set)
    file = _core.RecordFile(reader)
    read = _core.PendingRead(_core.Pool(1), file, np.arange(40))
    file.close()
    del file
    if waits:
        assert read.wait() == RECORDS
    del read, reader
    assert gone.wait(60)


class Stuck(MemoryReader):
    """Reads after its gate opens, if it has one."""

    gate = None

    def __init__(self, content):
        super().__init__(content)
        self.at_gate = threading.Semaphore(0)

    def read_range(self, offset, size):
        if self.gate:
            self.at_gate.release()
            assert self.gate.wait(60)
        return super().read_range(offset, size)


@pytest.fixture
def stuck(content):
    reader = Stuck(content)
    file = _core.RecordFile(reader)
    reader.gate = threading.Event()
    yield reader, file
    reader.gate.set()


@pytest.mark.parametrize("way", ["read_many", "wait"])
def test_read_can_be_interrupted(stuck, way):
    reader, file = stuck
    keys = np.arange(0, 40, 4)

    def interrupt():
        reader.at_gate.acquire(timeout=60)  # Released by a thread while the read waits.
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        if way == "read_many":
            file.read_many(keys)
        else:
            _core.PendingRead(_core.Pool(1), file, keys).wait()
    thread.join()
    reader.gate.set()
    assert file.read_many(keys) == [RECORDS[i] for i in keys]


def test_abandoned_read_is_not_waited_for(stuck):
    reader, file = stuck
    read = _core.PendingRead(_core.Pool(1), file, np.arange(0, 40, 2))
    reader.at_gate.acquire(timeout=60)
    del read
    assert not reader.gate.is_set()


# Other processes


def source_of(server, tmp_path, **options):
    """Return one source for two files on the server, and their records."""
    records = [b"%d" % i * 700 for i in range(24)]
    server.files["other"] = written(tmp_path, records, "group_size:3,zstd")
    urls = [server.url("file"), server.url("other")]
    return gm.sources.ArrayRecordDataSource(urls, **options), RECORDS + records


def test_sources_read_urls(server, tmp_path):
    options = {"headers": {"Authorization": "Bearer token"}}
    source, records = source_of(
        server, tmp_path, storage_options=options, remote_options=SMALL_TAIL
    )
    order = np.random.default_rng(0).permutation(64)
    for copy in source, pickle.loads(pickle.dumps(source)):
        assert copy.__getitems__(order) == [records[i] for i in order]
        assert copy.sizes(order).tolist() == [len(records[i]) for i in order]
        copy.close()
        assert copy[63] == records[63]
    assert list(source) == records
    part = gm.sources.ArrayRecordDataSource(server.url("file") + "[3:9]")
    assert list(part) == records[3:9]
    assert set(server.authorizations) == {"Bearer token", None}


def test_files_are_opened_at_the_same_time(server, content):
    for i in range(6):
        server.files[f"{i}"] = content
    urls = [server.url(f"{i}") + "[0:40]" for i in range(6)]
    source = gm.sources.ArrayRecordDataSource(urls)
    assert server.gets == []
    server.barrier = threading.Barrier(
        6, timeout=60
    )  # Used for the indices, then for records.
    keys = np.arange(6) * 40 + 5
    assert source.__getitems__(keys) == [RECORDS[5]] * 6
    assert not server.barrier.broken


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_read_urls(server, tmp_path, workers):
    source, records = source_of(server, tmp_path)
    order = np.random.default_rng(1).permutation(64)
    loader = gm.DataLoader(
        data_source=source,
        sampler=Order(order),
        shard_options=gm.NoSharding(),
        worker_count=workers,
    )
    assert list(loader) == [records[i] for i in order]


class Pid(gm.MapTransform):
    def map(self, element):
        return os.getpid()


@pytest.mark.claim(
    "Some steps bind a stream to one worker, so that more workers than "
    "streams do not help."
)
@pytest.mark.multiprocess
def test_stream_of_remote_files_belongs_to_one_worker(server, tmp_path):
    source, _ = source_of(server, tmp_path)
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.SequentialSampler(64),
        operations=[Pid()],
        worker_count=4,
        streams=2,
    )
    assert len({*loader}) == 2


class Order:
    """Samples the given keys."""

    def __init__(self, keys):
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return gm.RecordMetadata(index, int(self.keys[index]))

    def __repr__(self):
        return "Order"


@pytest.mark.multiprocess
def test_workers_report_errors_of_urls(server, tmp_path):
    source, _ = source_of(server, tmp_path)
    server.files["file"] = server.files["file"][: 2 * BLOCK]
    loader = gm.DataLoader(
        data_source=source, sampler=gm.SequentialSampler(64), worker_count=1
    )
    with pytest.raises(CorruptRecord, match="expected 917504 bytes, found 131072"):
        list(loader)
    del server.files["file"]
    with pytest.raises(FileNotFoundError, match="file: reading its size failed at the"):
        list(loader)


def test_pickled_file_detects_change(server, remote, content):
    file = pickle.loads(pickle.dumps(RemoteFile(server.url("file"))))
    assert repr(file) == f"RemoteFile('{server.url('file')}')"
    assert file.read_range(70, 5) == content[70:75]
    assert file.change() == ""
    server.tags["file"] = '"two"'
    assert "its ETag is" in pickle.loads(pickle.dumps(file)).change()


def test_forked_child_continues_reading(server, remote):
    file = _core.RecordFile(RemoteFile(server.url("file")))
    order = ints([0, 9, 18, 27, 36])
    pending = _core.PendingRead(_core.Pool(1), file, order)
    expected = [RECORDS[i] for i in order]
    child = os.fork()
    if child == 0:
        right = file.read_many(order) == expected and pending.wait() == expected
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pending.wait() == expected


@pytest.mark.multiprocess
@pytest.mark.parametrize("way", ["busy", "waiting"])
def test_pending_reads_do_not_block_exit(tmp_path, content, way):
    path = tmp_path / "file"
    path.write_bytes(content)
    done = subprocess.run(
        command("remote/reads_under_way", path, way),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


# Arguments, and errors of clients that are not installed


def test_urls_are_distinguished_from_paths():
    assert all(
        map(is_url, ["gs://a/b", "s3://a", "hf://d/x", "a+b://c", "tar::http://x"])
    )
    assert not any(
        map(is_url, ["/a/b", "a/b", "a:b", "./x://", "", "1://x", "//host/a"])
    )


def test_wrong_arguments_are_refused(memory, tmp_path):
    with pytest.raises(
        ValueError, match=r"access must .*'mmap' for memory://remote/file"
    ):
        open_file(memory, access="mmap")
    with pytest.raises(ValueError, match="storage_options needs a URL"):
        open_file(tmp_path / "x", storage_options={"anon": True})
    with pytest.raises(ValueError, match="Protocol not known: nosuch") as caught:
        open_file("nosuch://file")
    assert "nosuch://file: reading its size failed" in caught.value.__notes__[0]
    for name, value in {"attempts": 0, "parallel": 1, "first_delay_s": -1}.items():
        with pytest.raises(ValueError, match=f"{name} must be at least .*got {value}"):
            RemoteOptions(**{name: value})
    with pytest.raises(ValueError, match="timeout_s must be above 0, got 0"):
        RemoteOptions(timeout_s=0)
    with pytest.raises(TypeError, match="attempts must be an int, got float"):
        RemoteOptions(attempts=2.5)
    with pytest.raises(ValueError, match="most_delay_s must be at least 0, got nan"):
        RemoteOptions(most_delay_s=float("nan"))


def test_storage_options_are_passed_to_file_system(server):
    options = {"headers": {"Authorization": "Bearer token"}}
    file = open_file(server.url("file"), storage_options=options)
    server.authorizations.clear()
    file.read(0)
    assert server.authorizations == ["Bearer token"]


def test_missing_fsspec_names_extra(monkeypatch, memory):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match=r"pip install 'gristmill\[remote\]'"):
        open_file(memory)


def test_missing_client_package_names_url(monkeypatch):
    # Like the entry of gs:// and gcsfs in fsspec, but its package does not exist.
    entry = {"class": "no_such_package.Files", "err": "Install no_such_package"}
    monkeypatch.setitem(known_implementations, "needy", entry)
    with pytest.raises(ImportError) as raised:
        open_file("needy://bucket/file")
    assert str(raised.value) == (
        "Reading needy://bucket/file needs a package that is not installed: Install"
        " no_such_package. Install it; for http:// and https://, use: pip install"
        " 'gristmill[remote]'"
    )


def library_error(package, name, base=Exception, **attributes):
    """Return an error like those of a client that may not be installed."""
    kind = type(name, (base,), {"__module__": f"{package}.exceptions"})
    error = type("Derived", (kind,), {"__module__": "elsewhere"})("text")
    error.__dict__.update(attributes)
    return error


def caused(error, cause):
    error.__cause__ = cause
    return error


def response(**attributes):
    return types.SimpleNamespace(**attributes)


TRANSIENT = [
    ConnectionResetError(),
    TimeoutError(),
    OSError(errno.EIO, "input/output error"),
    OSError(errno.EBUSY, "slow down"),
    library_error("aiohttp", "ClientPayloadError"),
    library_error("botocore", "HTTPClientError"),
    library_error("google", "TransportError"),
    library_error("httpx", "TransportError"),
    library_error("requests", "ConnectionError", OSError),
    library_error("gcsfs", "HttpError", code=503),
    library_error("gcsfs", "HttpError", code="429"),
    library_error("requests", "HTTPError", OSError, response=response(status_code=500)),
    library_error(
        "botocore",
        "ClientError",
        response={"ResponseMetadata": {"HTTPStatusCode": 503}},
    ),
    caused(FileNotFoundError("url"), library_error("aiohttp", "E", status=502)),
    caused(OSError("text"), ConnectionResetError()),
    caused(
        library_error("aiohttp", "ClientPayloadError"),
        library_error("aiohttp", "ContentLengthError", code=400),
    ),
]
PERMANENT = [
    FileNotFoundError(),
    PermissionError(errno.EACCES, "denied"),
    OSError("text"),
    OSError(errno.ENOSPC, "text"),
    ValueError("text"),
    library_error("gcsfs", "HttpError", code=403),
    library_error("aiohttp", "ClientResponseError", status=404),
    library_error("botocore", "NoCredentialsError"),
    library_error("botocore", "ClientError", response={}),
    caused(FileNotFoundError("url"), library_error("aiohttp", "E", status=404)),
]


def test_transient_errors_are_recognized():
    assert [error for error in TRANSIENT if not is_transient(error)] == []
    assert [error for error in PERMANENT if is_transient(error)] == []


def test_errors_that_cause_each_other_end_the_search():
    one, two = OSError("one"), OSError("two")
    one.__cause__, two.__cause__ = two, one
    assert not is_transient(one)
    assert status_of(one) is None


def test_attempts_are_counted_per_range(server, remote, sleeps):
    file = _core.RecordFile(remote())
    server.gets.clear()
    server.faults.extend([503] * 5 + [None] * 50)
    assert file.read_many(np.arange(0, 40, 8)) == RECORDS[::8]
    assert len(server.gets) == 10
    ranges = {first for _, first, _ in server.gets}
    assert len(ranges) == 5
    assert len(list(itertools.chain(sleeps))) == 5
