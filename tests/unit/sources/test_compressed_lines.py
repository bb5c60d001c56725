"""Tests of reading lines of gzip and zstd files, which gzip and zstandard write."""

import bz2
import gzip
import lzma
import os
import pathlib
import pickle
import struct
import threading

import fsspec
import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import errors, sources
from gristmill.sources import _json_lines

SKIPPABLE = b"\x5e\x2a\x4d\x18"  # The magic number of the seek table of zstd files.
MAX_FRAME = _json_lines.CACHE_BYTES


def zstd(data):
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def zstd_without_size(data):
    writer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return writer.compress(data) + writer.flush()


def skipped(data):
    return SKIPPABLE + struct.pack("<I", len(data)) + data


def seekable(data):
    """Return a zstd frame, and a table such as the seekable format has at the end."""
    return zstd(data) + skipped(struct.pack("<IIIBI", 9, 9, 1, 0, 0x8F92EAB1))


def padded_gzip(data):
    return gzip.compress(data) + bytes(700)


def bgzip(data):
    """Return a gzip member with its size in an extra field, as bgzip writes."""
    member = gzip.compress(data)
    size = struct.pack("<H2sHH", 6, b"BC", 2, (len(member) + 7) & 0xFFFF)
    return member[:3] + b"\x04" + member[4:10] + size + member[10:]


def announced(data):
    """Return a frame after one that has its size, as pzstd writes."""
    frame = zstd(data)
    return skipped(struct.pack("<I", len(frame))) + frame


COMPRESSORS = {
    "gzip": gzip.compress,
    "padded gzip": padded_gzip,
    "bgzip of gzip members": bgzip,
    "zstd": zstd,
    "zstd without sizes": zstd_without_size,
    "seekable zstd": seekable,
    "pzstd": announced,
}


def decompressed(path, name):
    """Return the content as the gzip and zstandard packages read it."""
    if "gzip" in name:
        with gzip.open(path) as file:
            return file.read()
    with open(path, "rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(
            file, read_across_frames=True
        )
        return reader.read()


def lines_of(data):
    return [line for line in data.replace(b"\r\n", b"\n").split(b"\n") if line]


PIECES = st.sampled_from([b"\n", b"\r\n", b"a", b'{"x": 1}', b"long" * 20_000])
FRAMES = st.lists(st.lists(PIECES, max_size=8).map(b"".join), min_size=1, max_size=5)


@given(FRAMES, st.sampled_from(sorted(COMPRESSORS)), st.data())
@example([b"", b"a\n", b""], "gzip", None)
@example([b""], "seekable zstd", None)
@settings(max_examples=80, deadline=None)
def test_lines_equal_those_of_the_decompressed_file(
    tmp_path_factory, frames, name, data
):
    path = tmp_path_factory.mktemp("drawn") / "drawn.jsonl"
    path.write_bytes(b"".join(map(COMPRESSORS[name], frames)))
    content = decompressed(path, name)
    assert content == b"".join(frames)
    expected = lines_of(content)
    source = sources.JsonLinesDataSource(path)
    assert list(source) == expected
    if not expected or data is None:
        return
    order = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=9))
    again = sources.JsonLinesDataSource(path, access="mmap")
    assert again.__getitems__(order) == [expected[i] for i in order]
    sizes = again.sizes(range(len(expected)))
    assert sizes.tolist() == [*map(len, expected)]


def text_of(numbers):
    return "".join(f'{{"n": {n}}}\n' for n in numbers).encode()


def line(number):
    return b'{"n": %d}' % number


@pytest.fixture
def shards(tmp_path):
    """Write 20,000 lines to a file of each kind, in frames that cut lines."""
    text = text_of(range(20_000))
    parts = [text[i : i + 50_001] for i in range(0, len(text), 50_001)]
    for name, compress in [("gz", gzip.compress), ("zst", zstd)]:
        data = b"".join(map(compress, parts))
        (tmp_path / f"part.jsonl.{name}").write_bytes(data)
    return [tmp_path / "part.jsonl.gz", tmp_path / "part.jsonl.zst"]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_reads_all_lines(shards, workers):
    source = sources.JsonLinesDataSource(shards)
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(len(source), num_epochs=1, shuffle=True, seed=3),
        worker_count=workers,
    )
    assert sorted(loader) == sorted([line(n) for n in range(20_000)] * 2)


def test_threads_read_the_same_frames(shards):
    source = sources.JsonLinesDataSource(shards)
    found = {}

    def read(seed):
        order = np.random.default_rng(seed).permutation(40_000)[:2_000]
        found[seed] = source.__getitems__(order) == [line(n % 20_000) for n in order]

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)


def test_indices_are_kept_and_loaded_again(shards):
    for shard in shards:
        assert len(sources.JsonLinesDataSource(shard)) == 20_000
        indices = [*shard.parent.glob(f".{shard.name}.gristmill-index*")]
        made = {path.name: path.stat().st_ino for path in indices}
        assert [*sorted(made)] == [
            f".{shard.name}.gristmill-index",
            f".{shard.name}.gristmill-index-frames",
        ]
        source = pickle.loads(pickle.dumps(sources.JsonLinesDataSource(shard)))
        assert source[19_999] == line(19_999)
        assert {path.name: path.stat().st_ino for path in indices} == made
        indices[0].unlink()
        assert sources.JsonLinesDataSource(shard)[19_999] == line(19_999)


def test_index_is_made_again_after_a_change(tmp_path):
    path = tmp_path / "train.jsonl"
    for compress in (bytes, gzip.compress, zstd, bytes):
        path.write_bytes(compress(text_of(range(5))))
        os.utime(path, ns=(len(compress(b"")), 1))
        assert list(sources.JsonLinesDataSource(path)) == [line(n) for n in range(5)]


def test_file_of_the_size_of_its_text_is_decompressed_again(tmp_path):
    path = tmp_path / "train.jsonl"
    text = text_of(range(50))
    path.write_bytes(gzip.compress(text).ljust(len(text), b"\0"))
    assert path.stat().st_size == len(text)
    for _ in range(2):
        assert list(sources.JsonLinesDataSource(path)) == [line(n) for n in range(50)]


def test_far_file_equals_the_local_one(shards, tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_CACHE_DIR", str(tmp_path / "cache"))
    for shard in shards:
        url = f"memory://{shard.name}"
        with fsspec.open(url, "wb") as far:
            far.write(shard.read_bytes())
        source = sources.JsonLinesDataSource(url)
        order = np.random.default_rng(0).permutation(20_000)[:100]
        assert source.__getitems__(order) == [line(n) for n in order]
        assert list(source)[19_000:] == [line(n) for n in range(19_000, 20_000)]


@pytest.mark.parametrize("compress", [gzip.compress, zstd_without_size])
def test_frame_that_is_too_large_names_convert(tmp_path, compress):
    path = tmp_path / "train.jsonl.gz"
    small = compress(b"small\n")
    path.write_bytes(small + compress(bytes(MAX_FRAME)))
    assert len(sources.JsonLinesDataSource(path)) == 2
    path.write_bytes(small + compress(bytes(MAX_FRAME + 1)))
    match = (
        rf"train\.jsonl\.gz: the \w+ frame at offset {len(small)}: .*more than"
        r" 67108864 bytes.*smaller frames.*`gristmill convert`"
    )
    with pytest.raises(errors.CorruptRecord, match=match):
        sources.JsonLinesDataSource(path)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (bz2.compress(b"text\n"), "bzip2"),
        (lzma.compress(b"text\n"), "xz"),
        (b"PK\3\4more", "zip"),
        (b"\x04\x22\x4d\x18more", "lz4"),
    ],
)
def test_other_compression_names_convert(tmp_path, data, name):
    path = tmp_path / "train.jsonl"
    path.write_bytes(data)
    with pytest.raises(
        errors.CorruptRecord, match=rf"train\.jsonl: .*{name}.*`gristmill convert`"
    ):
        sources.JsonLinesDataSource(path)


@pytest.mark.parametrize("compress", [gzip.compress, zstd, zstd_without_size])
def test_truncated_file_is_an_error(tmp_path, compress):
    path = tmp_path / "train.jsonl"
    first = compress(b"first\n")
    whole = first + compress(b"second\n")
    for size in range(len(first) + 1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(
            errors.CorruptRecord, match=rf"frame at offset {len(first)}: .*ends within"
        ):
            sources.JsonLinesDataSource(path)


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_garbage_between_frames_is_an_error(tmp_path, compress):
    path = tmp_path / "train.jsonl"
    first = compress(b"first\n")
    path.write_bytes(first + b"garbage that is neither")
    with pytest.raises(
        errors.CorruptRecord, match=rf"frame at offset {len(first)}: \w+ data are"
    ):
        sources.JsonLinesDataSource(path)


@pytest.mark.parametrize("access", ["pread", "mmap"])
@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_damage_after_indexing_names_the_line(tmp_path, compress, access):
    path = tmp_path / "train.jsonl"
    first = compress(bytes(range(11, 256)) * 1_000)
    whole = first + compress(b"\nsecond\n")
    path.write_bytes(whole)
    times = os.stat(path)
    assert len(sources.JsonLinesDataSource(path)) == 2
    damaged = bytearray(whole)
    damaged[len(first) + len(compress(b"\nsecond\n")) // 2] ^= 0xFF
    path.write_bytes(damaged)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    source = sources.JsonLinesDataSource(path, access=access)
    assert len(source[0]) == 245_000
    with pytest.raises(
        errors.CorruptRecord,
        match=rf"train\.jsonl: line 1 at offset 245001: the \w+ frame at offset"
        rf" {len(first)}: \w+ data are damaged",
    ):
        source[1]


@pytest.mark.parametrize("access", ["pread", "mmap"])
def test_file_that_shrank_is_an_error(shards, access):
    for shard in shards:
        source = sources.JsonLinesDataSource(shard, access=access)
        os.truncate(shard, 50)
        with pytest.raises(errors.CorruptRecord, match="changed while it was open"):
            source[19_999]


@given(st.integers(0, 10_000), st.integers(1, 255), st.sampled_from([0, 1]))
@settings(max_examples=60, deadline=None)
def test_any_damage_is_an_error_or_harmless(tmp_path_factory, offset, change, kind):
    compress = [gzip.compress, zstd][kind]
    whole = bytearray(b"".join(compress(text_of(range(n))) for n in (3, 50, 9)))
    whole[offset % len(whole)] ^= change
    path = tmp_path_factory.mktemp("damaged") / "train.jsonl"
    path.write_bytes(whole)
    try:
        list(sources.JsonLinesDataSource(path))
    except errors.CorruptRecord as error:
        assert str(path) in str(error)


def test_empty_frames_have_no_lines(tmp_path):
    for name, compress in COMPRESSORS.items():
        path = pathlib.Path(tmp_path, f"{name}.jsonl")
        path.write_bytes(compress(b"") + compress(b""))
        assert len(sources.JsonLinesDataSource(path)) == 0
