"""Tests of streaming TFRecord files, compressed or not."""

import gzip
import io
import itertools
import pickle
import zlib

import numpy as np
import pytest

from gristmill import _core, errors, sources
from support.tf_record_files import by_tensorflow, framed, write

NAMES = ["mixed", "tiny", "empty", "one", "none"]
KINDS = {"tfrecord": None, "gz": "GZIP", "zlib": "ZLIB"}
PACK = {"tfrecord": bytes, "gz": gzip.compress, "zlib": zlib.compress}
RECORDS = [bytes([i % 256]) * (i % 300) for i in range(400)]
DATA = b"".join(map(framed, RECORDS))


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    return by_tensorflow(tmp_path_factory)


@pytest.fixture(params=KINDS)
def file(request, tmp_path):
    """Write RECORDS to a file of each kind."""
    path = tmp_path / f"records.{request.param}"
    path.write_bytes(PACK[request.param](DATA))
    return path


def read(stream):
    """Return the records before the first error, and the error's text."""
    records = []
    try:
        for record in stream:
            records.append(record)
    except errors.CorruptRecord as error:
        return records, str(error)
    return records, ""


class TestReading:
    @pytest.mark.parametrize("suffix", KINDS)
    @pytest.mark.parametrize("name", NAMES)
    def test_records_match_tensorflow(self, oracle, name, suffix):
        path = oracle.folder / f"{name}.{suffix}"
        for compression in ("auto", KINDS[suffix]):
            with sources.read_tf_records(path, compression) as stream:
                assert list(stream) == oracle.contents[name]
                assert stream.compression == KINDS[suffix]

    def test_stream_continues_from_position(self, file):
        for count in (0, 1, 250, 400):
            stream = sources.read_tf_records(file)
            assert list(itertools.islice(stream, count)) == RECORDS[:count]
            position = stream.position
            offset = sum(16 + len(record) for record in RECORDS[:count])
            assert position == (count, offset)
            again = pickle.loads(pickle.dumps(position))
            later = sources.read_tf_records(file, position=again)
            assert list(later) == RECORDS[count:]
            assert later.position == (400, len(DATA))

    def test_concatenated_compressed_streams_are_read(self, tmp_path):
        path = tmp_path / "appended"
        path.write_bytes(gzip.compress(DATA[:5000]) + gzip.compress(DATA[5000:]))
        assert list(sources.read_tf_records(path)) == RECORDS

    def test_length_bytes_are_not_taken_for_compression(self, tmp_path):
        # GZIP and ZLIB files begin with 0x8b1f and 0x9c78.
        for size in (0x8B1F, 0x9C78):
            path = write(tmp_path / "records", [bytes(size)])
            stream = sources.read_tf_records(path)
            assert stream.compression is None
            assert [len(record) for record in stream] == [size]

    @pytest.mark.parametrize("suffix", KINDS)
    def test_memory_use_does_not_grow_with_file_size(self, tmp_path, suffix):
        path = tmp_path / "zeros"
        path.write_bytes(PACK[suffix](framed(bytes(1 << 20)) * 200))
        stream = sources.read_tf_records(path)
        before = resident_bytes()
        assert sum(len(record) for record in stream) == 200 << 20
        assert resident_bytes() - before < 32 << 20

    def test_repr_shows_path_and_position(self, file):
        stream = sources.read_tf_records(file)
        assert repr(stream) == (
            f"<TFRecordStream {str(file)!r} at TFRecordPosition(record=0, offset=0)>"
        )

    def test_closed_stream_raises(self, file):
        with sources.read_tf_records(file) as stream:
            next(stream)
        with pytest.raises(ValueError, match=f"{file}: .*the stream is closed"):
            next(stream)


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


class TestDamage:
    def test_records_before_damage_match_tensorflow(self, oracle):
        assert len(oracle.damaged) == 24
        for name, expected in oracle.damaged.items():
            path = oracle.folder / name
            found, error = read(sources.read_tf_records(path))
            assert found == expected
            if error:
                offset = sum(16 + len(record) for record in expected)
                text = f"{path}: record {len(expected)} at offset {offset}: "
                assert error.startswith(text)
            else:  # The file was cut between two records.
                assert name.startswith("cut")

    def test_stream_continues_after_damaged_data(self, tmp_path):
        data = bytearray(DATA)
        at = sum(16 + len(record) for record in RECORDS[:50])
        data[at + 12] ^= 1
        path = tmp_path / "records"
        path.write_bytes(data)
        stream = sources.read_tf_records(path)
        found, error = read(stream)
        assert found == RECORDS[:50]
        assert f"record 50 at offset {at}: the checksum of its data is 0x" in error
        assert list(stream) == RECORDS[51:]
        trusting = list(sources.read_tf_records(path, verify="none"))
        assert trusting[51:] == RECORDS[51:]
        assert trusting[50] != RECORDS[50]

    @pytest.mark.parametrize("suffix", ["gz", "zlib"])
    def test_damaged_compressed_data_is_reported(self, tmp_path, suffix):
        rng = np.random.default_rng(0)
        records = [rng.bytes(100) for _ in range(1000)]
        packed = PACK[suffix](b"".join(map(framed, records)))
        path = tmp_path / "records"
        kind = KINDS[suffix]
        for cut in (len(packed) - 1, len(packed) // 2, 40):
            path.write_bytes(packed[:cut])
            found, error = read(sources.read_tf_records(path))
            assert found == records[: len(found)]
            assert f"{path}: expected {kind} data after" in error
            assert "found a truncated file" in error
        bad = bytearray(packed)
        bad[-2] ^= 1
        path.write_bytes(bad)
        found, error = read(sources.read_tf_records(path))
        assert found == records[: len(found)]
        assert f"{path}: expected {kind} data after" in error
        assert "found invalid data (Error -3" in error
        path.write_bytes(packed + b"and something else")
        found, error = read(sources.read_tf_records(path))
        assert found == records
        assert "found invalid data (Error -3" in error

    def test_wrong_compression_is_reported(self, tmp_path):
        path = write(tmp_path / "plain", RECORDS)
        _, error = read(sources.read_tf_records(path, "GZIP"))
        assert "expected GZIP data after 0 decompressed bytes, found inv" in error
        path.write_bytes(gzip.compress(DATA))
        _, error = read(sources.read_tf_records(path, None))
        assert f"{path}: record 0 at offset 0: the checksum of its length" in error
        assert "not a TFRecord file, or damaged" in error

    def test_wrong_position_is_reported(self, file):
        beyond = sources.TFRecordPosition(500, len(DATA) + 1)
        with pytest.raises(
            errors.CorruptRecord, match=f"{file}: (position must|expected) "
        ):
            sources.read_tf_records(file, position=beyond)
        between = sources.TFRecordPosition(3, 20)
        with pytest.raises(errors.CorruptRecord, match="record 3 at offset 20: the ch"):
            next(sources.read_tf_records(file, position=between))


class TestArguments:
    def test_bad_arguments_are_refused(self, file):
        with pytest.raises(ValueError, match=r"compression must be .*got 'LZMA'"):
            sources.read_tf_records(file, "LZMA")
        with pytest.raises(ValueError, match="must be 'all', 'headers' or 'none'"):
            sources.read_tf_records(file, verify="some")
        with pytest.raises(FileNotFoundError, match="nothing"):
            sources.read_tf_records(file.with_name("nothing"))


class Source(io.RawIOBase):
    """A source with the given `readinto`."""

    def __init__(self, readinto):
        self.readinto = readinto


class TestSources:
    """Tests of sources that misbehave."""

    def stream(self, readinto):
        return _core.TfRecordStream(Source(readinto), "name", "all", 0, 0)

    def test_error_of_source_is_raised(self):
        rooms = []

        def fail(room):
            rooms.append(room)
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            next(self.stream(fail))
        # The memoryview that the source kept has been released.
        with pytest.raises(ValueError, match="released memoryview"):
            rooms[0][0] = 1

    def test_readinto_result_larger_than_buffer_is_refused(self):
        stream = self.stream(lambda room: len(room) + 1)
        with pytest.raises(ValueError, match=r"readinto\(\) must return at most"):
            next(stream)

    def test_source_that_reads_its_stream_is_refused(self):
        stream = self.stream(lambda room: len(next(stream)))
        with pytest.raises(ValueError, match="during another call"):
            next(stream)

    def test_source_may_return_single_bytes(self):
        data = iter(DATA[:1000])

        def one(room):
            for byte in data:
                room[0] = byte
                return 1
            return 0

        found, error = read(self.stream(one))
        assert found == RECORDS[: len(found)]
        assert error.startswith(f"name: record {len(found)} at offset ")
