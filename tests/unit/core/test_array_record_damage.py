"""Readers of damaged ArrayRecord files raise errors and return no wrong data."""

import itertools
import os
import pickle
import threading

import fsspec
import numpy as np
import pytest
from array_record.python import array_record_module

import gristmill as gm
from gristmill import _core
from gristmill.errors import CorruptRecord, RemoteError
from gristmill.sources._record_files import open_file
from gristmill.sources._remote_options import RemoteOptions

BLOCK = 65536
COUNT = 30
ADVICE = ": the file is damaged, copy it or write it again"
OPTIONS = RemoteOptions(tail_bytes=BLOCK, gap_bytes=0, run_bytes=30_000)


def records_of(seed):
    rng = np.random.default_rng(seed)
    return [rng.bytes(int(rng.integers(4000, 9000))) for _ in range(COUNT)]


RECORDS = records_of(0)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a function that returns the content of a file."""
    folder = tmp_path_factory.mktemp("written")
    made = {}

    def make(options="group_size:1,uncompressed", records=RECORDS):
        key = options, len(records), records[0]
        if key not in made:
            path = str(folder / str(len(made)))
            writer = array_record_module.ArrayRecordWriter(path, options)
            for record in records:
                writer.write(record)
            writer.close()
            with open(path, "rb") as file:
                made[key] = file.read()
        return made[key]

    return make


class Local:
    def __init__(self, folder, access):
        self.name = str(folder / "file")
        self.access = access

    def write(self, content):
        """Write in place, like most damage to files."""
        with open(self.name, "r+b" if os.path.exists(self.name) else "wb") as file:
            file.write(content)
            file.truncate()

    def replace(self, content):
        with open(self.name + ".new", "wb") as file:
            file.write(content)
        os.replace(self.name + ".new", self.name)

    def remove(self):
        os.unlink(self.name)

    def open(self, verify="all"):
        cache = _core.ChunkCache(0)
        return open_file(self.name, verify=verify, access=self.access, cache=cache)


class Remote:
    name = "memory://damage/file"

    def write(self, content):
        with fsspec.open(self.name, "wb") as file:
            file.write(content)

    replace = write

    def remove(self):
        fsspec.filesystem("memory").rm(self.name)

    def open(self, verify="all"):
        return open_file(
            self.name,
            verify=verify,
            cache=_core.ChunkCache(0),
            remote_options=OPTIONS,
        )


@pytest.fixture(params=["pread", "mmap", "remote"])
def medium(request, tmp_path):
    if request.param == "remote":
        yield Remote()
        fsspec.filesystem("memory").store.clear()
    else:
        yield Local(tmp_path, request.param)


def flipped(content, offset, bit=2):
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def error_of(call, kind=CorruptRecord):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def read_all(file):
    """Read each record separately; return its error if it has one."""
    found = []
    for i in range(len(file)):
        try:
            found.append(file.read(i))
        except (CorruptRecord, RemoteError) as error:
            found.append(error)
    return found


# At open


def test_missing_file_error_has_path(medium):
    assert medium.name in error_of(medium.open, FileNotFoundError)


def test_directory_error_has_path(tmp_path):
    with fsspec.open("memory://damage/file", "wb"):
        pass
    for name in str(tmp_path), "memory://damage":
        found = error_of(lambda name=name: open_file(name), IsADirectoryError)
        assert f"{name}: " in found
        assert "found a directory" in found
    fsspec.filesystem("memory").store.clear()


NOT_WHOLE = {
    "empty": (lambda b: b"", "the file has 0 bytes, expected a multiple of 65536"),
    "of another format": (lambda b: b"PK\3\4" * BLOCK, "postscript: "),
    "of another size": (lambda b: b"PK\3\4" * 1000, "the file has 4000 bytes"),
    "a byte short": (lambda b: b[:-1], "it was truncated or not closed by its writer"),
    "a block short": (lambda b: b[:-BLOCK], "postscript: "),
    "half": (lambda b: b[: len(b) // 2 // BLOCK * BLOCK], "postscript: "),
    "a byte longer": (lambda b: b + b"x", "expected a multiple of 65536"),
    "a block longer": (lambda b: b + bytes(BLOCK), "postscript: "),
    "twice itself": (lambda b: b + b[:BLOCK], "postscript: "),
    "without its start": (lambda b: b[BLOCK:], "footer at offset"),
}


@pytest.mark.claim(
    "A missing or damaged ArrayRecord file raises RuntimeError when it is "
    'first read; a truncated one may return b""'
)
@pytest.mark.parametrize("verify", ["all", "headers", "none"])
@pytest.mark.parametrize("case", NOT_WHOLE)
def test_incomplete_file_raises_at_open(medium, written, case, verify):
    damage, expected = NOT_WHOLE[case]
    medium.write(damage(written()))
    found = error_of(lambda: medium.open(verify))
    assert found.startswith(f"{medium.name}: ")
    assert expected in found
    medium.write(written())
    assert medium.open(verify).read(3) == RECORDS[3]


def test_wrong_magic_number_raises_at_open(medium, written):
    content = written()
    magic = 0x71930E704FDAE05E.to_bytes(8, "little")
    # Encode as a varint, the lowest seven bits first.
    value, varint = int.from_bytes(magic, "little"), bytearray()
    while value >= 0x80:
        varint.append(value & 0x7F | 0x80)
        value >>= 7
    varint.append(value)
    offset = content.index(bytes(varint), len(content) - BLOCK)
    medium.write(flipped(content, offset + 1, 0))
    found = error_of(lambda: medium.open("none"))
    assert (
        f"{medium.name}: postscript: chunk at offset {len(content) - BLOCK}: " in found
    )
    assert (
        "its magic number is 0x71930e704fdae0de, expected 0x71930e704fdae05e" in found
    )
    assert found.endswith(ADVICE)
    assert "the hash of its data" in error_of(medium.open)


# One bit


@pytest.mark.claim("Files")
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize(
    "codec", ["uncompressed", "zstd", "brotli:1", "snappy", "zstd,transpose:true"]
)
def test_flipped_bit_affects_only_its_chunk(medium, written, codec, group):
    content = written(f"group_size:{group},{codec}")
    medium.write(content)
    file = medium.open()
    chunks = [file.chunk(i)[:2] for i in range(file.num_chunks)]
    footer = chunks[-1][1]
    rng = np.random.default_rng([group, len(codec)])
    for offset in rng.integers(64, footer + 200, 60).tolist():
        medium.write(flipped(content, offset, int(rng.integers(8))))
        chunk = next((i for i, c in enumerate(chunks) if offset < c[1]), None)
        if chunk is None:
            found = error_of(medium.open)
            assert found.startswith(
                f"{medium.name}: footer: chunk at offset {footer}: "
            )
            assert found.endswith(ADVICE)
            continue
        # A damaged block header affects the chunk around it, or the next one.
        lost = range(chunk * group, min(COUNT, (chunk + 1) * group))
        for i, found in enumerate(read_all(medium.open())):
            if i not in lost:
                assert found == RECORDS[i]
                continue
            text = f"{medium.name}: record {i}: chunk at offset {chunks[chunk][0]}: "
            assert isinstance(found, CorruptRecord), (offset, i)
            assert str(found).startswith(text)
            assert str(found).endswith(ADVICE)


def test_flipped_bit_of_postscript_raises_at_open(medium, written):
    content = written()
    begin = len(content) - BLOCK
    for offset in 0, 9, 17, 24, 31, 33, 40, 48, 49, 56, 64, 70, 80, 90:
        medium.write(flipped(content, begin + offset))
        found = error_of(medium.open)
        assert found.startswith(f"{medium.name}: postscript: chunk at offset {begin}: ")
        assert found.endswith(ADVICE)
    medium.write(content)
    assert read_all(medium.open()) == RECORDS


def test_flipped_bit_of_signature_or_padding_is_ignored(medium, written):
    content = written()
    for offset in 0, 30, 63, len(content) - 1:
        medium.write(flipped(content, offset))
        assert read_all(medium.open()) == RECORDS


@pytest.mark.claim("Files")
def test_flipped_bit_of_block_header_error_has_offset(medium, written):
    content = written()
    for byte in 0, 9, 17:
        medium.write(flipped(content, BLOCK + byte))
        for verify in "all", "headers":
            found = read_all(medium.open(verify))
            bad = [i for i, record in enumerate(found) if record != RECORDS[i]]
            assert len(bad) == 1
            text = str(found[bad[0]])
            assert f"{medium.name}: record {bad[0]}: " in text
            assert f"block header at offset {BLOCK}: its hash is 0x" in text
        assert read_all(medium.open("none")) == RECORDS


# Too large to be read in one request.
LARGE = [np.random.default_rng(i).bytes(70_000 + 7 * i) for i in range(5)]


@pytest.mark.parametrize(
    "bad", [bad for n in range(1, 6) for bad in itertools.combinations(range(5), n)]
)
@pytest.mark.parametrize("verify", ["all", "none"])
def test_large_records_error_has_first_bad_record(medium, written, bad, verify):
    content = written(records=LARGE)
    for record in bad:
        middle = content.index(LARGE[record][10_000:10_100]) + 50
        content = flipped(content, middle)
    medium.write(content)
    file = medium.open(verify)
    if verify == "none":
        found = file.read_many(np.arange(5))
        differ = [i for i in range(5) if found[i] != LARGE[i]]
        assert differ == list(bad)
        return
    message = error_of(lambda: file.read_many(np.arange(5)[::-1].copy()))
    assert f": record {bad[0]}: chunk at offset " in message
    assert "the hash of its data is " in message
    good = [i for i in range(5) if i not in bad]
    assert file.read_many(np.array(good, np.int64)) == [LARGE[i] for i in good]


def test_earlier_damage_is_reported_first(medium, written):
    content = written(records=LARGE)
    medium.write(content)
    begins = [medium.open("headers").chunk(i)[0] for i in range(5)]
    for damaged in (0, 1, 2):
        middle = content.index(LARGE[damaged][10_000:10_100]) + 50
        broken = flipped(flipped(content, middle), begins[3] + 3)
        medium.write(broken)
        file = medium.open()
        message = error_of(lambda file=file: file.read_many(np.arange(5)))
        assert f": record {damaged}: " in message
        assert file.read_many(np.array([4])) == LARGE[4:]


def test_batch_with_bad_record_raises_and_reader_continues(medium, written):
    content = written()
    medium.write(content)
    begin, end, _, _ = medium.open().chunk(17)
    medium.write(flipped(content, (begin + end) // 2))
    file = medium.open()
    pool = _core.Pool(3)
    for read in (
        lambda: file.read_many(np.arange(COUNT)),
        lambda: file.read_many(np.arange(COUNT), packed=True),
        lambda: _core.PendingRead(pool, file, np.arange(COUNT)).wait(),
    ):
        assert f"{medium.name}: record 17: chunk at offset {begin}: " in error_of(read)
    others = np.delete(np.arange(COUNT), 17)
    assert file.read_many(others) == [RECORDS[i] for i in others]
    medium.write(content)
    assert file.read_many(np.arange(COUNT)) == RECORDS


# While the file is open


@pytest.mark.parametrize("group", [1, 4])
def test_truncation_affects_only_lost_records(medium, written, group):
    content = written(f"group_size:{group},uncompressed")
    medium.write(content)
    file = medium.open()
    ends = [file.chunk(i // group)[1] for i in range(COUNT)]
    for size in 0, 1000, BLOCK, BLOCK + 17, 2 * BLOCK, ends[14] - 1:
        medium.write(content[:size])
        for i, found in enumerate(read_all(file)):
            if ends[i] > size:
                text = str(found)
                assert text.startswith(f"{medium.name}: ")
                assert f"it has {size} bytes now, {len(content)} when" in text
            elif getattr(medium, "access", None) != "mmap":
                assert found == RECORDS[i]
        medium.write(content)
        assert read_all(file) == RECORDS


def test_appended_bytes_are_ignored(medium, written):
    medium.write(written())
    file = medium.open()
    medium.write(written() + b"more")
    assert read_all(file) == RECORDS


def test_overwritten_file_raises(medium, written):
    medium.write(written())
    file = medium.open()
    other = written(records=records_of(1))[: len(written())].ljust(len(written()), b"x")
    medium.write(other)
    for i, found in enumerate(read_all(file)):
        assert isinstance(found, CorruptRecord)
        assert str(found).startswith(f"{medium.name}: record {i}: ")
        assert "while it was open" in str(found)


def test_replaced_or_removed_file_stays_readable(tmp_path, written):
    for access in "pread", "mmap":
        medium = Local(tmp_path, access)
        medium.write(written())
        file = medium.open()
        medium.replace(written(records=records_of(1)))
        assert read_all(file) == RECORDS
        assert read_all(medium.open()) == records_of(1)
        medium.remove()
        assert read_all(file) == RECORDS


# From several threads and processes


def test_threads_get_errors_of_their_records(medium, written):
    content = written("group_size:2,zstd")
    medium.write(content)
    begin, end, _, _ = medium.open().chunk(5)
    medium.write(flipped(content, (begin + end) // 2))
    file = medium.open()
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for i in rng.integers(0, COUNT, 40).tolist():
            try:
                right = file.read(i) == RECORDS[i] and i not in (10, 11)
            except CorruptRecord as error:
                right = i in (10, 11) and f"record {i}: chunk at offset" in str(error)
            if not right:
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_forked_child_gets_same_results(medium, written):
    content = written()
    medium.write(content)
    begin, end, _, _ = medium.open().chunk(5)
    medium.write(flipped(content, (begin + end) // 2))
    file = medium.open()
    before = [str(found) for found in read_all(file)]
    child = os.fork()
    if child == 0:
        os._exit(0 if [str(found) for found in read_all(file)] == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.claim("Files")
@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_a_pickled_source_gets_the_same(tmp_path, written, access):
    content = written()
    medium = Local(tmp_path, access)
    medium.write(content)
    begin, end, _, _ = medium.open().chunk(5)
    medium.write(flipped(content, (begin + end) // 2))
    source = gm.sources.ArrayRecordDataSource(medium.name, access=access)
    for copy in source, pickle.loads(pickle.dumps(source)):
        assert f"{medium.name}: record 5: chunk" in error_of(lambda c=copy: c[5])
        assert [copy[i] for i in (4, 6)] == [RECORDS[4], RECORDS[6]]


@pytest.mark.multiprocess
def test_workers_send_the_error(tmp_path, written):
    medium = Local(tmp_path, "pread")
    content = written()
    medium.write(content)
    begin, end, _, _ = medium.open().chunk(5)
    medium.write(flipped(content, (begin + end) // 2))
    loader = gm.DataLoader(
        data_source=gm.sources.ArrayRecordDataSource(medium.name),
        sampler=gm.SequentialSampler(COUNT),
        worker_count=1,
    )
    assert f"{medium.name}: record 5: chunk at" in error_of(lambda: list(loader))
