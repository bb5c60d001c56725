"""Records are read by the caller, or by threads if reading is slow."""

import abc
import os
import threading
from concurrent.futures import Future

import numpy as np
import pytest

import gristmill as g
from gristmill._engine import reading

RECORDS = 60


class Source:
    """Records the keys and threads of reads; some reads fail."""

    def __init__(self, bad=()):
        self.reads = []
        self.threads = set()
        self.bad = bad

    def __len__(self):
        return RECORDS

    def __getitem__(self, key):
        self.reads.append(key)
        self.threads.add(threading.get_ident())
        if key in self.bad:
            raise OSError(f"record {key} is gone")
        return key * 10


class Together(Source, abc.ABC):
    """Also reads blocks, and records their sizes."""

    def __init__(self, bad=()):
        super().__init__(bad)
        self.blocks = []

    def __getitem__(self, key):
        return super().__getitem__(key)

    def __getitems__(self, keys):
        records = [super(Together, self).__getitem__(key) for key in keys]
        self.blocks.append(len(records))
        return records


class Twice(g.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element):
        return [element, element + 1]


def made(source, threads=4, ahead=8, look_ahead=True):
    return reading.Reading(
        source,
        g.ReadOptions(threads, ahead),
        lambda first, count: range(first, first + count),
        RECORDS,
        look_ahead,
    )


def read(reader, source, position, count):
    """Read records, in as many calls as needed."""
    elements, failure = [], None
    while len(elements) < count and failure is None:
        at = position + len(elements)
        keys = range(at, position + count)
        found = reader.read(at, keys)
        some, failure = reading.read_each(source, keys) if found is None else found
        elements += some
    return elements, failure


@pytest.fixture
def slow(monkeypatch):
    """Make every read count as slow."""
    monkeypatch.setattr(reading, "SLOW_READ_S", -1.0)


@pytest.fixture
def fast(monkeypatch):
    """Make no read count as slow, even on a busy machine."""
    monkeypatch.setattr(reading, "LONG_READ_S", 1e6)
    monkeypatch.setattr(reading, "SLOW_READ_S", 1e6)


def test_fast_source_is_read_by_the_caller(fast):
    source = Source()
    reader = made(source)
    for position in range(0, RECORDS, 6):
        found = read(reader, source, position, 6)
        assert found == ([10 * (position + i) for i in range(6)], None)
    assert source.reads == list(range(RECORDS))
    assert source.threads == {threading.get_ident()}


def test_slow_source_is_read_ahead_by_threads(slow):
    source = Source()
    reader = made(source)
    assert read(reader, source, 0, 10) == ([10 * i for i in range(10)], None)
    reader.close()
    assert source.reads[0] == 0
    assert set(source.reads) >= set(range(10))
    assert threading.get_ident() in source.threads
    assert len(source.threads) > 1
    assert max(source.reads) < 10 + 8


def test_every_record_is_read_once(slow):
    source = Source()
    reader = made(source)
    for position in range(RECORDS):
        assert read(reader, source, position, 1) == ([position * 10], None)
    assert sorted(source.reads) == list(range(RECORDS))


def test_records_after_a_failure_are_not_read_again(slow):
    bad = range(0, RECORDS, 7)
    source = Source(bad)
    loader = g.DataLoader(
        data_source=source,
        sampler=g.SequentialSampler(RECORDS),
        operations=[g.Batch(20)],
        on_error="skip",
    )
    elements = np.concatenate(list(loader))
    assert elements.tolist() == [10 * i for i in range(RECORDS) if i not in bad]
    assert sorted(source.reads) == list(range(RECORDS))


@pytest.mark.parametrize("threads", [0, 4])
def test_failing_block_is_read_once_by_record(fast, threads):
    bad = (1, 5, 22)
    source = Together(bad)
    loader = g.DataLoader(
        data_source=source,
        sampler=g.SequentialSampler(RECORDS),
        operations=[g.Batch(20)],
        on_error="skip",
        read_options=g.ReadOptions(threads, 8),
    )
    elements = np.concatenate(list(loader))
    assert elements.tolist() == [10 * i for i in range(RECORDS) if i not in bad]
    assert max(map(source.reads.count, range(RECORDS))) == 2
    assert len(source.blocks) >= 2


def test_failing_step_rereads_no_block(fast):
    class Fails(g.MapTransform):
        def map(self, element):
            if element % 70 == 0:
                raise ValueError(element)
            return element

    source = Together()
    loader = g.DataLoader(
        data_source=source,
        sampler=g.SequentialSampler(RECORDS),
        operations=[Fails(), g.Batch(20)],
        on_error="skip",
    )
    assert sum(map(len, loader)) == RECORDS - 9
    assert source.reads == list(range(RECORDS))


def test_source_turning_fast_returns_to_the_caller(monkeypatch, slow):
    monkeypatch.setattr(reading, "BLOCKS_BETWEEN_PROBES", 2)
    source = Source()
    reader = made(source)
    read(reader, source, 0, 6)
    reader._probe.slow_s = 1e9
    position = 6
    while reader.read(position, [position]) is not None:
        position += 1
    assert position < 40
    assert sorted(source.reads) == list(range(position))


def test_source_with_getitems_is_read_in_blocks(fast):
    source = Together()
    loader = g.DataLoader(
        data_source=source,
        sampler=g.SequentialSampler(RECORDS),
        operations=[g.Batch(6)],
    )
    assert [x for batch in loader for x in batch.tolist()] == [*range(0, 600, 10)]
    assert source.blocks == [6] * 10


def test_source_with_slow_blocks_is_read_by_threads(slow):
    source = Together()
    reader = made(source)
    for position in range(0, RECORDS, 6):
        found = read(reader, source, position, 6)
        assert found == ([10 * (position + i) for i in range(6)], None)
    assert len(source.threads) > 1
    assert sorted(source.reads) == list(range(RECORDS))


def test_failing_block_yields_records_before_the_bad_one(slow):
    source = Together(bad={2})
    elements, failure = read(made(source), source, 0, 6)
    assert elements == [0, 10]
    assert str(failure) == "record 2 is gone"


@pytest.mark.parametrize("options", [(0, 8), (4, 0)])
def test_read_options_can_disable_threads(slow, options):
    source = Source()
    reader = made(source, *options)
    assert reader.read(0, range(RECORDS)) is None
    reader.start(0)
    assert source.reads == []


def test_source_with_by_threads_false_gets_no_threads(slow):
    source = Source()
    source.allows_threads = False
    reader = made(source)
    assert reader.read(0, range(RECORDS)) is None
    reader.start(0)
    assert source.reads == []


def test_look_ahead_false_reads_nothing_ahead(slow):
    source = Source()
    reader = made(source, look_ahead=False)
    read(reader, source, 0, 10)
    reader.close()
    assert sorted(source.reads) == list(range(10))


@pytest.mark.parametrize("bad", [2, 7])
def test_records_before_a_failure_are_kept(slow, bad):
    source = Source(bad={bad})
    elements, failure = read(made(source), source, 0, 10)
    assert elements == [10 * i for i in range(bad)]
    assert str(failure) == f"record {bad} is gone"


class EndsAtTimeout(Future):
    """A read that ends just after the wait for it has timed out."""

    def __init__(self, element, failure):
        super().__init__()
        self._outcome = element, failure

    def _time_out(self, timeout):
        if timeout is not None and not self.done():
            element, failure = self._outcome
            if failure is None:
                self.set_result(element)
            else:
                self.set_exception(failure)
            raise TimeoutError

    def result(self, timeout=None):
        self._time_out(timeout)
        return super().result(timeout)

    def exception(self, timeout=None):
        self._time_out(timeout)
        return super().exception(timeout)


@pytest.mark.parametrize("failure", [None, OSError("record 3 is gone")])
def test_read_that_ends_at_the_timeout_is_used(slow, failure):
    source = Source()
    reader = made(source)
    assert read(reader, source, 0, 1) == ([0], None)
    reader.start(1)
    reader._futures[3] = EndsAtTimeout(30, failure)
    expected = [10, 20, 30, 40] if failure is None else [10, 20]
    assert read(reader, source, 1, 4) == (expected, failure)


def test_forget_drops_records_read_ahead(slow):
    source = Source()
    reader = made(source)
    read(reader, source, 0, 10)
    reader.forget()
    assert read(reader, source, 40, 10) == ([10 * i for i in range(40, 50)], None)


@pytest.mark.multiprocess
def test_fork_reads_with_its_own_threads(slow):
    source = Source()
    reader = made(source)
    read(reader, source, 0, 10)
    child = os.fork()
    if child == 0:
        same = read(reader, source, 10, 20) == ([10 * i for i in range(10, 30)], None)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read(reader, source, 10, 20) == ([10 * i for i in range(10, 30)], None)


MAYBE_WORKERS = [0, pytest.param(2, marks=pytest.mark.multiprocess)]
CHAINS = {"single": [], "batches": [g.Batch(7)], "splits": [Twice(), g.Batch(7)]}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.multiprocess)]
)
def test_loaders_with_threads_match_loaders_without(slow, chain, workers):
    def elements(threads):
        source = Source()
        loader = g.DataLoader(
            data_source=source,
            sampler=g.IndexSampler(RECORDS, shuffle=True, num_epochs=2, seed=5),
            operations=CHAINS[chain],
            worker_count=workers,
            read_options=g.ReadOptions(threads, 11),
        )
        iterator = iter(loader)
        iterator.start_prefetch()
        given = [np.asarray(next(iterator)).tolist() for _ in range(5)]
        state = iterator.get_state()
        given += [np.asarray(x).tolist() for x in iterator]
        iterator.set_state(state)
        assert [np.asarray(x).tolist() for x in iterator] == given[5:]
        if workers == 0:
            assert (len(source.threads) > 1) == (threads > 0)
        return given

    assert elements(4) == elements(0)
