"""Natively decoded batches match batches of records decoded one by one."""

import itertools
import pickle

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import gristmill
from gristmill import sources
from gristmill._engine.block_queue import RecordBlocks

SIZE = 20
BAD = b"x" * SIZE


class Halves(gristmill.transforms.Map):
    """Decodes the bytes of a record, or a block of records if none is bad."""

    @property
    def decodes_blocks(self):
        return type(self).map is Halves.map

    def __init__(self, blocks="yes"):
        self.blocks = blocks
        self.decoded = 0

    def map(self, record):
        if record == BAD:
            raise ValueError("a bad record")
        values = np.frombuffer(record, np.uint8)
        return {"b": values[10:], "a": values[:10].copy()}

    def decode_block(self, data, offsets, alloc, rules):
        if self.blocks == "no":
            return None
        rows = data.reshape(len(offsets) - 1, SIZE)
        if (rows == BAD[0]).all(axis=1).any():
            raise ValueError("a bad record somewhere")
        self.decoded += 1
        names = ["a", "b"] if rules == "jax" else ["b", "a"]
        batch = {}
        for name in names:
            part = rows[:, :10] if name == "a" else rows[:, 10:]
            batch[name] = np.empty(part.shape, np.uint8)
            if alloc is not None:
                batch[name] = alloc(part.shape, np.dtype(np.uint8))
            batch[name][:] = part
        return batch


@pytest.fixture(params=["group_size:1", "group_size:8"])
def path(tmp_path, request):
    path = str(tmp_path / "data")
    writer = ArrayRecordWriter(path, request.param)
    for i in range(100):
        writer.write(BAD if i == 63 else bytes([i]) * SIZE)
    writer.close()
    return path


def loader_over(source, operations, *, workers=0, take=60, options=None):
    return gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(
            take, gristmill.NoSharding(), shuffle=True, num_epochs=3, seed=1
        ),
        operations=operations,
        worker_count=workers,
        read_options=options,
    )


def plain(batches):
    return [pickle.dumps(batch) for batch in batches]


def chain(step, drop_remainder=False):
    return [step, gristmill.Batch(7, drop_remainder=drop_remainder)]


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_loader_batches_match_row_decoding(path, workers, drop_remainder):
    source = sources.ArrayRecordDataSource(path)
    expected = loader_over(
        list(source), chain(Halves(), drop_remainder), workers=workers
    )
    found = loader_over(source, chain(Halves(), drop_remainder), workers=workers)
    assert plain(found) == plain(expected)


@pytest.mark.parametrize("options", [(0, 0), (1, 1), (2, 50)])
def test_loader_decodes_each_batch_as_a_block(path, options):
    step = Halves()
    source = sources.ArrayRecordDataSource(path)
    options = gristmill.ReadOptions(*options)
    assert len(list(loader_over(source, chain(step), options=options))) == 26
    assert step.decoded == 26


def test_steps_after_the_batch_follow(path):
    source = sources.ArrayRecordDataSource(path)
    operations = [*chain(Halves(), drop_remainder=True), gristmill.Batch(2)]
    expected = plain(loader_over(list(source), operations))
    assert plain(loader_over(source, operations)) == expected


def test_declined_blocks_are_decoded_record_by_record(path):
    source = sources.ArrayRecordDataSource(path)
    expected = plain(loader_over(list(source), chain(Halves())))
    assert plain(loader_over(source, chain(Halves("no")))) == expected


def dataset_over(source, step, order="step last", drop_remainder=False):
    """Return a chain that batches the first 60 records, shuffled, for two epochs."""
    ds = gristmill.MapDataset.source(source)[:60]
    if order == "step last":
        ds = ds.shuffle(1).repeat(2).map(step)
    else:
        ds = ds.map(step).shuffle(1).repeat(2)
    return ds.to_iter_dataset().batch(7, drop_remainder=drop_remainder)


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("order", ["step last", "step first"])
def test_chain_batches_match_row_decoding(path, workers, drop_remainder, order):
    options = gristmill.MultiprocessingOptions(num_workers=workers)
    source = sources.ArrayRecordDataSource(path)
    expected, found = (
        dataset_over(records, Halves(), order, drop_remainder).mp_prefetch(options)
        for records in (list(source), source)
    )
    assert plain(found) == plain(expected)


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_chain_decodes_each_batch_as_a_block(path, threads):
    step = Halves()
    ds = gristmill.MapDataset.source(sources.ArrayRecordDataSource(path))[:60]
    options = gristmill.ReadOptions(threads, 50 if threads else 0)
    batches = ds.map(step).to_iter_dataset(options).batch(7)
    iterator = iter(batches)
    iterator.start_prefetch()
    assert len(list(iterator)) == 9
    assert step.decoded == 9


@pytest.mark.parametrize("blocks", ["yes", "no"])
def test_chain_resumes_between_batches(path, blocks):
    ds = dataset_over(sources.ArrayRecordDataSource(path), Halves(blocks))
    expected = plain(ds)
    iterator = iter(ds)
    for number in range(len(expected) - 1):
        state = iterator.get_state()
        assert plain([next(iterator)]) == [expected[number]]
        iterator.set_state(state)
        assert plain([next(iterator)]) == [expected[number]]
        assert state == {"next_index": 7 * number}


def test_interrupted_chain_repeats_the_batch(path, monkeypatch):
    step = Halves()
    ds = gristmill.MapDataset.source(sources.ArrayRecordDataSource(path))[:60]
    iterator = iter(ds.map(step).to_iter_dataset().batch(7))
    expected = plain(ds.map(Halves()).to_iter_dataset().batch(7))
    assert plain([next(iterator)]) == expected[:1]

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(step, "decode_block", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    assert plain(iterator) == expected[1:]


def test_bad_record_of_chain_is_named(path):
    source = sources.ArrayRecordDataSource(path)
    ds = gristmill.MapDataset.source(source).map(Halves()).to_iter_dataset().batch(7)
    iterator = iter(ds)
    for _ in range(9):
        next(iterator)
    with pytest.raises(ValueError, match="a bad record\n") as raised:
        next(iterator)
    assert "record 63 (index 63)" in raised.value.__notes__[-1]
    expected = plain([Halves().map(bytes([i]) * SIZE) for i in range(64, 71)])
    rows = next(iterator)
    assert plain({"b": rows["b"][i], "a": rows["a"][i]} for i in range(7)) == expected


@pytest.mark.claim("Custom steps other than BlockMap process one record at a time.")
def test_python_step_receives_one_record_at_a_time(path):
    class Length(gristmill.transforms.Map):
        def __init__(self):
            self.seen = []

        def map(self, record):
            self.seen.append(record)
            return len(record)

    step = Length()
    source = sources.ArrayRecordDataSource(path)
    list(loader_over(source, [step, gristmill.Batch(7)]))
    assert len(step.seen) == 180
    assert {len(record) for record in step.seen} == {SIZE}


@pytest.fixture
def reads(monkeypatch):
    """Return the keys of all blocks whose reading began."""
    keys = []
    for name in ("read", "begin"):
        original = getattr(RecordBlocks, name)

        def noting(blocks, numbers, *rest, original=original):
            keys.extend(numbers.tolist())
            return original(blocks, numbers, *rest)

        monkeypatch.setattr(RecordBlocks, name, noting)
    return keys


@pytest.mark.parametrize("options", [None, gristmill.ReadOptions(0, 0)])
@pytest.mark.parametrize("blocks", ["yes", "no"])
def test_records_are_read_once_with_or_without_blocks(path, reads, blocks, options):
    source = sources.ArrayRecordDataSource(path)
    loader = loader_over(source, chain(Halves(blocks)), options=options)
    assert sum(len(batch["a"]) for batch in loader) == 180
    assert sorted(reads) == sorted([*range(60)] * 3)


def test_block_with_bad_record_is_read_once(path, reads):
    source = sources.ArrayRecordDataSource(path)
    options = gristmill.ReadOptions(0, 0)
    loader = loader_over(source, chain(Halves()), take=100, options=options)
    done = 0
    with pytest.raises(ValueError, match="a bad record"):
        for _ in loader:
            done += 1
    assert len(reads) == 7 * (done + 1)
    assert 63 in reads[-7:]


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 1])
def test_bad_record_fails_in_its_turn_and_is_named(path, workers):
    source = sources.ArrayRecordDataSource(path)
    iterators = [
        iter(loader_over(records, chain(Halves()), workers=workers, take=100))
        for records in (source, list(source))
    ]
    failures = 0
    for _ in range(60):
        outcomes = []
        for iterator in iterators:
            try:
                outcomes.append(pickle.dumps(next(iterator, None)))
            except ValueError as error:
                outcomes.append((str(error), error.__notes__))
                failures += 1
        assert outcomes[0] == outcomes[1]
    assert failures == 2 * 3


def test_loader_resumes_at_every_batch(path):
    source = sources.ArrayRecordDataSource(path)
    expected = plain(loader_over(source, chain(Halves())))
    iterator = iter(loader_over(source, chain(Halves())))
    other = iter(loader_over(source, chain(Halves())))
    for position in range(len(expected)):
        other.set_state(iterator.get_state())
        other.start_prefetch()
        assert plain(itertools.islice(other, 3)) == expected[position : position + 3]
        next(iterator)


def test_ids_match_row_decoding(path):
    source = sources.ArrayRecordDataSource(path)
    ours, theirs = (
        iter(loader_over(records, chain(Halves())))
        for records in (source, list(source))
    )
    for _ in range(26):
        next(ours), next(theirs)
        assert ours.ids().tolist() == theirs.ids().tolist()


class Doubled(Halves):
    def map(self, record):
        return {name: half * 2 for name, half in super().map(record).items()}


def test_overridden_map_disables_block_decoding(path):
    source = sources.ArrayRecordDataSource(path)
    expected = plain(loader_over(list(source), chain(Doubled())))
    assert plain(loader_over(source, chain(Doubled()))) == expected
