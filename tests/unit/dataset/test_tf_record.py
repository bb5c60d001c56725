"""TFRecord files are read starting at any record."""

import gzip
import io

import pytest

import gristmill
from gristmill._dataset.nodes.tf_record import TFRecordDatasetIterator, TFRecordReader
from gristmill.errors import CorruptRecord
from gristmill.experimental import InterleaveIterDataset, TFRecordIterDataset
from support.tf_record_files import framed, write
from support.twins import assert_twins, grain

RECORDS = [b"one", b"", b"three" * 1000, bytes(range(256))]


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "file.tfrecord", RECORDS)


def test_records_and_offsets_match_grain(file):
    elements = assert_twins(lambda lib: lib.experimental.TFRecordIterDataset(str(file)))
    assert elements == RECORDS
    state = iter(TFRecordIterDataset(file)).get_state()
    assert state == {"reader_offset": 0}


def test_several_files_are_interleaved(tmp_path):
    files = [
        write(tmp_path / f"{i}", [b"%d%d" % (i, k) for k in range(n)])
        for i, n in enumerate([2, 3, 1])
    ]

    def make(lib):
        parts = [lib.experimental.TFRecordIterDataset(str(file)) for file in files]
        return lib.experimental.InterleaveIterDataset(parts, cycle_length=2)

    assert assert_twins(make) == [b"00", b"10", b"01", b"11", b"12", b"20"]


@pytest.mark.claim("Compressed TFRecord files can only be read in order, or converted.")
def test_compressed_files_are_recognized(tmp_path):
    file = tmp_path / "file.gz"
    file.write_bytes(gzip.compress(b"".join(map(framed, RECORDS))))
    ds = TFRecordIterDataset(file)
    assert list(ds) == RECORDS
    iterator = iter(ds)
    next(iterator)
    resumed = iter(ds)
    resumed.set_state(iterator.get_state())
    assert list(resumed) == RECORDS[1:]


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
@pytest.mark.parametrize("left", [5, 14, -1])
def test_truncated_files_raise(library, file, left):
    file.write_bytes(file.read_bytes()[:left])
    iterator = iter(library().experimental.TFRecordIterDataset(str(file)))
    with pytest.raises(ValueError):
        list(iterator)


def test_damaged_length_raises_but_damaged_data_does_not(file):
    whole = bytearray(file.read_bytes())
    whole[12] ^= 1
    file.write_bytes(whole)
    assert len(list(TFRecordIterDataset(file))) == len(RECORDS)
    whole[0] ^= 1
    file.write_bytes(whole)
    with pytest.raises(CorruptRecord, match=r"file.tfrecord"):
        list(TFRecordIterDataset(file))


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_missing_file_fails_at_iter(library, tmp_path):
    ds = library().experimental.TFRecordIterDataset(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        iter(ds)


def test_closed_iterator_raises(file):
    iterator = iter(InterleaveIterDataset([TFRecordIterDataset(file)], cycle_length=1))
    assert next(iterator) == b"one"
    iterator.close()
    iterator = iter(TFRecordIterDataset(file))
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)


def test_subclass_may_open_the_file_itself(file):
    class Reader(TFRecordReader):
        def __init__(self, path):
            self._reader = io.BytesIO(path.read_bytes())

    class Records(TFRecordDatasetIterator):
        def __init__(self, path):
            gristmill.DatasetIterator.__init__(self)
            self._reader = Reader(path)

    iterator = Records(file)
    assert next(iterator) == RECORDS[0]
    state = iterator.get_state()
    assert state == {"reader_offset": 16 + len(RECORDS[0])}
    assert list(iterator) == RECORDS[1:]
    iterator.set_state(state)
    assert list(iterator) == RECORDS[1:]
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)
