"""The core's ArrayRecord reader against the files and answers of the wheel."""

import errno
import itertools
import os
import threading
from functools import partial

import numpy as np
import pytest
from array_record.python import array_record_module

from gristmill import _core, errors
from support.protobuf_samples import message

CODECS = ["uncompressed", "zstd", "brotli:1", "snappy"]
GROUPS = [1, 7, 64, 1000, 65536]
BLOCK = 65536


def write(path, options, records):
    writer = array_record_module.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return str(path)


def options_of(codec, group, transpose=False, pad=False):
    return ",".join(
        [f"group_size:{group}", codec]
        + ["transpose:true"] * transpose
        + ["pad_to_block_boundary:true"] * pad
    )


def samples(rng, kind, count):
    if kind == "empty":
        return [b""] * count
    if kind == "tiny":
        return [rng.bytes(int(rng.integers(0, 40))) for _ in range(count)]
    return [rng.bytes(1 << 19) + bytes(1 << 19) for _ in range(count)]


@pytest.fixture
def file_of(tmp_path):
    """Return a function that writes records and returns the path."""

    def make(records, options="group_size:1,uncompressed"):
        return write(tmp_path / "records.array_record", options, records)

    return make


def ints(values):
    return np.asarray(values, np.int64)


def wheel_records(path):
    reader = array_record_module.ArrayRecordReader(path)
    count = reader.num_records()
    records = reader.read(list(range(count))) if count else []
    reader.close()
    return records


# Reading records that the package array_record wrote


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("codec", CODECS)
def test_read_equals_written_records(file_of, codec, group, transpose, pad):
    rng = np.random.default_rng([group, transpose, pad])
    for kind, count in itertools.product(["empty", "tiny", "mib"], [0, 1, 2, 1000]):
        if kind == "mib" and (count > 2 or group == 65536):
            continue
        records = samples(rng, kind, count)
        path = file_of(records, options_of(codec, group, transpose, pad))
        if count <= 2:
            assert wheel_records(path) == records
        for access in "pread", "mmap":
            file = _core.RecordFile(path, access=access)
            assert len(file) == count
            order = rng.permutation(count)
            assert file.read_many(order) == [records[i] for i in order]
            assert file.sizes(order).tolist() == [len(records[i]) for i in order]
            if count:
                assert file.read(count - 1) == records[-1]


@pytest.mark.parametrize("bucket", [1, 256, 100_000])
@pytest.mark.parametrize("group", [1, 7, 1000])
@pytest.mark.parametrize("codec", CODECS)
def test_read_transposed_messages(file_of, codec, group, bucket):
    rng = np.random.default_rng([group, bucket])
    records = [message(rng) for _ in range(300)]
    records[::9] = samples(rng, "tiny", len(records[::9]))  # These are not messages.
    options = f"transpose_bucket_size:{bucket},{options_of(codec, group, True)}"
    file = _core.RecordFile(file_of(records, options))
    assert file.read_many(np.arange(300)) == records


@pytest.mark.parametrize("option", ["zstd:19,window_log:31", "brotli,window_log:30"])
def test_read_large_windows(file_of, option):
    records = [bytes(5 << 20) + b"end", b"next"]
    file = _core.RecordFile(file_of(records, "group_size:2," + option))
    assert file.read_many(ints([1, 0])) == records[::-1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("group", [1, 5])
def test_read_records_around_block_boundaries(file_of, codec, group):
    rng = np.random.default_rng(0)
    sizes = [BLOCK + d for d in (-80, -66, -65, -64, -63, -24, -1, 0, 1, 30_000)]
    records = [rng.bytes(size) for size in [*sizes, 16_384, 16_383, 3 * BLOCK]]
    path = file_of(records, options_of(codec, group))
    for access, verify in itertools.product(["pread", "mmap"], ["all", "none"]):
        file = _core.RecordFile(path, verify, access)
        assert file.read_many(np.arange(len(records))) == records
        assert [file.read(i) for i in range(len(records))] == records


@pytest.mark.parametrize("codec", CODECS)
def test_read_footer_of_several_blocks(file_of, codec):
    records = [b"%d" % (i * i) for i in range(40_000)]
    path = file_of(records, options_of(codec, 1))
    for access in "pread", "mmap":
        file = _core.RecordFile(path, access=access)
        order = np.arange(0, 40_000, 11)
        assert file.read_many(order) == records[::11]
        assert file.sizes(np.arange(40_000)).tolist() == list(map(len, records))


def test_properties_describe_file(file_of):
    path = file_of([b"ab", b"", b"cde"], "group_size:2,snappy")
    file = _core.RecordFile(path)
    assert (len(file), file.group_size, file.num_chunks) == (3, 2, 2)
    assert file.path == path
    assert "group_size:2" in file.options
    assert not file.closed


def test_index_takes_at_most_eight_bytes_per_chunk(file_of):
    file = _core.RecordFile(file_of([b"0123456789" * 10] * 5000))
    assert file.num_chunks == 5000
    assert file.index_bytes <= 8 * 5000


# Ways of reading


@pytest.fixture(params=[1, 10])
def grouped(request, file_of):
    rng = np.random.default_rng(1)
    records = samples(rng, "tiny", 200)
    options = options_of("zstd", request.param)
    return _core.RecordFile(file_of(records, options)), records


def test_read_repeated_records(grouped):
    file, records = grouped
    order = ints([3, 3, 199, 0, 3])
    assert file.read_many(order) == [records[i] for i in order]
    assert file.read_many(ints([])) == []


def test_pending_reads_equal_records(grouped):
    file, records = grouped
    pool = _core.Pool(3)
    rng = np.random.default_rng(2)
    orders = [rng.integers(0, 200, 64) for _ in range(20)]
    pending = [_core.PendingRead(pool, file, order) for order in orders]
    for read, order in zip(pending, orders, strict=True):
        assert read.wait() == [records[i] for i in order]
    with pytest.raises(ValueError, match=r"wait\(\) was already called"):
        pending[0].wait()


def test_pending_read_outlives_file(grouped):
    file, records = grouped
    read = _core.PendingRead(_core.Pool(1), file, np.arange(200))
    file.close()
    del file
    assert read.wait() == records


def test_threads_share_file(grouped):
    file, records = grouped
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(20):
            order = rng.integers(0, 200, 32)
            if file.read_many(order) != [records[i] for i in order]:
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_cache_stays_below_max_bytes(file_of):
    records = [bytes([i % 256]) * 1000 for i in range(400)]
    path = file_of(records, options_of("zstd", 20))
    cache = _core.ChunkCache(100_000)
    file = _core.RecordFile(path, cache=cache)
    for i in range(0, 400, 7):
        assert file.read(i) == records[i]
        assert 0 < cache.held_bytes <= 100_000
    cache = _core.ChunkCache(0)
    assert _core.RecordFile(path, cache=cache).read(13) == records[13]
    assert cache.held_bytes == 0


# Wrong arguments


def test_wrong_options_raise(file_of):
    path = file_of([b"x"])
    with pytest.raises(ValueError, match=r"verify must be 'all', .* got 'some'"):
        _core.RecordFile(path, verify="some")
    with pytest.raises(ValueError, match=r"access must be 'pread' or .* got 'read'"):
        _core.RecordFile(path, access="read")


@pytest.mark.parametrize("record", [-1, 3, 2**62])
def test_record_out_of_range_raises(file_of, record):
    path = file_of([b"x"] * 3)
    file = _core.RecordFile(path)
    expected = f"{path}: record {record} is out of range: there are 3 records"
    for call in (
        lambda: file.read(record),
        lambda: file.read_many(ints([0, record])),
        lambda: file.sizes(ints([record])),
    ):
        with pytest.raises(IndexError) as caught:
            call()
        assert str(caught.value) == expected


def test_wrong_record_array_raises(file_of):
    file = _core.RecordFile(file_of([b"abc", b"de"]))
    both = ints([0, 1])
    with pytest.raises(ValueError, match="records must have one dimension"):
        file.read_many(both.reshape(1, 2))
    with pytest.raises(TypeError):
        file.read_many(both.astype(np.int32))


def test_closed_file_raises(file_of):
    path = file_of([b"x"])
    file = _core.RecordFile(path)
    file.close()
    file.close()
    assert file.closed
    for call in (lambda: file.read(0), lambda: len(file), lambda: file.options):
        with pytest.raises(ValueError, match="the file is closed"):
            call()


# Damaged files


def error_of(call):
    with pytest.raises(errors.CorruptRecord) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_missing_file_or_directory_raises_os_error(tmp_path, access):
    with pytest.raises(FileNotFoundError, match="nothing: open failed"):
        _core.RecordFile(str(tmp_path / "nothing"), access=access)
    with pytest.raises(IsADirectoryError, match="found a directory"):
        _core.RecordFile(str(tmp_path), access=access)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="not a regular file") as caught:
        _core.RecordFile(str(fifo), access=access)
    assert caught.value.errno == errno.EINVAL


DAMAGED_FILES = {
    "empty": (lambda b: b"", "the file has 0 bytes, expected a multiple of 65536"),
    "no record file": (lambda b: b"hello" * 1000, "the file has 5000 bytes"),
    "another format": (lambda b: b"\x89PNG" * BLOCK, "postscript: "),
    "one byte short": (lambda b: b[:-1], "expected a multiple of 65536"),
    "one block short": (lambda b: b[:-BLOCK], "postscript: "),
    "half": (lambda b: b[: len(b) // 2 + 17], "expected a multiple of 65536"),
    "one byte more": (lambda b: b + b"x", "expected a multiple of 65536"),
    "one block more": (lambda b: b + bytes(BLOCK), "postscript: "),
}


@pytest.mark.parametrize("verify", ["all", "none"])
@pytest.mark.parametrize("case", DAMAGED_FILES)
def test_damaged_file_raises_at_open(file_of, case, verify):
    damage, expected = DAMAGED_FILES[case]
    path = file_of([b"record %d" % i * 1000 for i in range(50)])
    with open(path, "r+b") as out:
        content = damage(out.read())
        out.seek(0)
        out.truncate()
        out.write(content)
    found = error_of(lambda: _core.RecordFile(path, verify))
    assert found.startswith(f"{path}: ")
    assert expected in found


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x04]))


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("codec", CODECS)
def test_flipped_bit_affects_only_its_chunk(file_of, codec, group):
    rng = np.random.default_rng(3)
    records = [rng.bytes(9000) for _ in range(24)]
    path = file_of(records, options_of(codec, group))
    chunk = 16 // group
    begin, end, _, _ = _core.RecordFile(path).chunk(chunk)
    lost = range(chunk * group, (chunk + 1) * group)
    for offset in (begin + 1, begin + 9, begin + 45, (begin + end) // 2, end - 1):
        flip(path, offset)
        file = _core.RecordFile(path)
        for i, record in enumerate(records):
            if i not in lost:
                assert file.read(i) == record
        for i in lost:
            found = error_of(partial(file.read, i))
            assert found.startswith(f"{path}: record {i}: chunk at offset {begin}: ")
            assert ", expected 0x" in found
        with pytest.raises(errors.CorruptRecord, match=f"record {lost[0]}: "):
            file.read_many(np.arange(len(records)))
        flip(path, offset)
        assert _core.RecordFile(path).read(lost[0]) == records[lost[0]]


@pytest.mark.parametrize("codec", CODECS)
def test_flipped_bit_of_footer_raises_at_open(file_of, codec):
    path = file_of([b"x" * 100] * 50, options_of(codec, 1))
    footer = _core.RecordFile(path).chunk(49)[1]
    for offset in 0, 8, 24, 39, 40, 45, 90:
        flip(path, footer + offset)
        found = error_of(partial(_core.RecordFile, path))
        assert found.startswith(f"{path}: footer: chunk at offset {footer}: ")
        flip(path, footer + offset)
    assert len(_core.RecordFile(path)) == 50


@pytest.mark.parametrize("offset", [0, 8, 23, 24, 32, 64, 70, 80])
def test_flipped_bit_of_postscript_raises_at_open(file_of, offset):
    path = file_of([b"x" * 100] * 50)
    flip(path, os.path.getsize(path) - BLOCK + offset)
    found = error_of(partial(_core.RecordFile, path))
    assert found.startswith(f"{path}: postscript: ")


def readable(file, record):
    try:
        file.read(record)
    except errors.CorruptRecord:
        return False
    return True


def test_flipped_bit_of_block_header_error_has_offset(file_of):
    rng = np.random.default_rng(4)
    records = [rng.bytes(10_000) for _ in range(20)]
    path = file_of(records)
    for byte in 0, 9, 17:
        flip(path, BLOCK + byte)
        file = _core.RecordFile(path, "headers")
        bad = [i for i in range(20) if not readable(file, i)]
        assert len(bad) == 1
        found = error_of(partial(file.read, bad[0]))
        assert f"block header at offset {BLOCK}: its hash is 0x" in found
        assert _core.RecordFile(path, "none").read(bad[0]) == records[bad[0]]
        flip(path, BLOCK + byte)


@pytest.mark.parametrize("access", ["pread", "mmap"])
@pytest.mark.parametrize("group", [1, 4])
def test_truncation_while_open_raises(file_of, group, access):
    rng = np.random.default_rng(5)
    records = [rng.bytes(10_000) for _ in range(40)]
    path = file_of(records, options_of("uncompressed", group))
    file = _core.RecordFile(path, access=access, cache=_core.ChunkCache(0))
    os.truncate(path, 2 * BLOCK)
    found = error_of(lambda: file.read(39))
    assert found.startswith(f"{path}: ")
    assert f"it has {2 * BLOCK} bytes now" in found
    if access == "pread":
        assert file.read(0) == records[0]


def test_grown_or_replaced_file_stays_readable(file_of, tmp_path):
    records = [b"%d" % i * 500 for i in range(100)]
    path = file_of(records)
    file = _core.RecordFile(path)
    with open(path, "ab") as out:
        out.write(b"more")
    assert file.read(99) == records[99]
    os.truncate(path, os.path.getsize(path) - 4)
    other = write(tmp_path / "other", "group_size:1", [b"other"])
    os.replace(other, path)
    assert file.read_many(np.arange(100)) == records
    assert _core.RecordFile(path).read(0) == b"other"


def test_overwritten_file_raises(file_of):
    path = file_of([b"%d" % i * 500 for i in range(100)])
    file = _core.RecordFile(path)
    size = os.path.getsize(path)
    with open(path, "r+b") as out:
        out.write(os.urandom(size))
    assert "the file was written to while it was open" in error_of(
        lambda: file.read(50)
    )
