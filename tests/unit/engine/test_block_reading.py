"""Records of files are read in blocks; a bad record fails its own block once."""

import types

import numpy as np
import pytest
from array_record.python import array_record_module

import gristmill as g
from gristmill import _core
from gristmill._engine.block_queue import BlockQueue, BlockReading, RecordBlocks

RECORDS = 512
BAD = (3, 100, 101, 130, 511)


@pytest.fixture
def source(tmp_path):
    """Write a file whose record i is the number i; damage the records in BAD."""
    path = tmp_path / "records.array_record"
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for i in range(RECORDS):
        writer.write(np.int64(i).tobytes())
    writer.close()
    file = _core.RecordFile(str(path))
    ends = [file.chunk(chunk)[1] for chunk in BAD]
    file.close()
    data = bytearray(path.read_bytes())
    for end in ends:
        data[end - 1] ^= 1
    path.write_bytes(data)
    return g.ArrayRecordDataSource(str(path))


@pytest.fixture
def failed(monkeypatch):
    """Return the positions of the blocks that could not be read."""
    positions = []
    take = BlockQueue.take

    def noting(queue, position, keys):
        try:
            return take(queue, position, keys)
        except Exception:
            positions.append(position)
            raise

    monkeypatch.setattr(BlockQueue, "take", noting)
    return positions


def numbers(first, count):
    return np.arange(first, first + count)


def made(source, ahead=500):
    keys = types.SimpleNamespace(block=numbers, length=RECORDS)
    queue = BlockQueue(RecordBlocks(source), keys, g.ReadOptions(2, ahead), True)
    return BlockReading(source, queue, keys)


@pytest.mark.parametrize("count", [1, 7, 64, 100])
@pytest.mark.parametrize("ahead", [0, 10, 500])
def test_each_bad_record_is_raised_at_its_position(source, count, ahead):
    reading = made(source, ahead)
    position, good, bad = 0, [], []
    while position < RECORDS:
        keys = np.arange(position, min(position + count, RECORDS))
        elements, failure = reading.read(position, keys)
        good += [int(np.frombuffer(element, np.int64)[0]) for element in elements]
        position += len(elements)
        if failure is not None:
            assert f"record {position}: " in str(failure)
            bad.append(position)
            position += 1
        else:
            assert len(elements) == len(keys)
    assert tuple(bad) == BAD
    assert good == [i for i in range(RECORDS) if i not in BAD]


@pytest.mark.parametrize("batch", [0, 100])
def test_block_with_bad_records_fails_once(source, failed, batch):
    loader = g.DataLoader(
        data_source=source,
        sampler=g.SequentialSampler(RECORDS),
        operations=[g.Batch(batch, batch_fn=len)] if batch else [],
        on_error="skip",
    )
    assert len(list(loader)) == (6 if batch else RECORDS - len(BAD))
    # Each bad record fails at most one block.
    assert len(failed) <= len(BAD)
    assert len(failed) == len(set(failed))


def test_bad_record_can_be_read_again(source):
    reading = made(source)
    for _ in range(2):
        elements, failure = reading.read(0, np.arange(5))
        assert len(elements) == 3
        assert "record 3: " in str(failure)
        assert not hasattr(failure, "__notes__")
        failure.add_note("seen")


def test_bad_record_can_be_skipped_unread(source):
    reading = made(source)
    for position in range(3):
        assert reading.read(position, [position])[1] is None
    elements, failure = reading.read(4, np.arange(4, 8))
    assert failure is None
    assert [int(np.frombuffer(e, np.int64)[0]) for e in elements] == [4, 5, 6, 7]


class Gone:
    """A file that is missing; `asked` counts the reads."""

    is_far = False
    item_bytes = 1

    def __init__(self):
        self.asked = 0

    def __getitem__(self, key):
        self.asked += 1
        raise FileNotFoundError("gone")

    def read_many(self, keys, packed=False):
        return self[keys]

    reader = property(lambda self: self)


def test_missing_file_fails_fast():
    source = Gone()
    keys = types.SimpleNamespace(block=numbers, length=RECORDS)
    queue = BlockQueue(RecordBlocks(source), keys, g.ReadOptions(0, 0), False)
    reading = BlockReading(source, queue, keys)
    for position in range(3):
        elements, failure = reading.read(position, numbers(position, 400))
        assert not elements
        assert isinstance(failure, FileNotFoundError)
    assert source.asked <= 3 * 3
