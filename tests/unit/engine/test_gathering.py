"""Threads gather batches of slow tables before they are needed."""

import os

import numpy as np
import pytest

import gristmill as g
from gristmill._engine import block_queue
from gristmill._engine.blocks import TableBlocks

ROW = 64
BATCH = 16
RECORDS = 5 * BATCH + 7


@pytest.fixture
def table():
    return np.random.default_rng(0).integers(0, 255, (RECORDS, ROW), np.uint8)


@pytest.fixture(autouse=True)
def _memory_counts_as_slow(monkeypatch):
    monkeypatch.setattr(TableBlocks, "slow_record_s", -1.0)


@pytest.fixture
def begun(monkeypatch):
    """Return the sizes of the batches that threads began to gather."""
    sizes = []
    begin_gather = g.sources.TableSource.begin_gather

    def count(self, rows, *rest):
        sizes.append(len(rows))
        return begin_gather(self, rows, *rest)

    monkeypatch.setattr(g.sources.TableSource, "begin_gather", count)
    return sizes


def loader(source, drop_remainder=False, **options):
    return g.DataLoader(
        data_source=source,
        sampler=g.IndexSampler(RECORDS, shuffle=True, num_epochs=2, seed=3),
        operations=[g.Batch(BATCH, drop_remainder)],
        worker_count=0,
        **options,
    )


def test_batches_are_the_rows_of_ids(table):
    iterator = iter(loader(table))
    seen = []
    for batch in iterator:
        np.testing.assert_array_equal(batch, table[iterator.ids()])
        seen.extend(iterator.ids())
    for epoch in (seen[:RECORDS], seen[RECORDS:]):
        assert sorted(epoch) == list(range(RECORDS))


@pytest.mark.parametrize("every", [2, 5, 256])
@pytest.mark.parametrize(
    "options",
    [g.ReadOptions(0, 0), g.ReadOptions(1, 1), g.ReadOptions(), g.ReadOptions(3, 9999)],
)
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_look_ahead_and_probes_change_no_batch(
    table, options, drop_remainder, every, monkeypatch
):
    monkeypatch.setattr(block_queue, "BLOCKS_BETWEEN_PROBES", every)
    ours = list(loader(table, drop_remainder, read_options=options))
    # A list is never a table: its elements are stacked.
    stacked = list(loader(list(table), drop_remainder))
    assert len(ours) == len(stacked)
    for mine, other in zip(ours, stacked, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_look_ahead_follows_read_options(table, begun):
    iterator = iter(loader(table, read_options=g.ReadOptions(2, 3 * BATCH)))
    for begun_by_now in (3, 4, 5):
        next(iterator)
        assert begun == [BATCH] * begun_by_now


def test_num_threads_0_gathers_without_threads(table, begun):
    assert len(list(loader(table, read_options=g.ReadOptions(0, 0)))) == 11
    assert begun == []


def test_fast_table_is_gathered_by_caller(table, begun, monkeypatch):
    monkeypatch.setattr(TableBlocks, "slow_record_s", 1.0)
    assert len(list(loader(table))) == 11
    assert begun == []


def test_caller_probes_slow_table_regularly(table, begun, monkeypatch):
    monkeypatch.setattr(block_queue, "BLOCKS_BETWEEN_PROBES", 2)
    assert len(list(loader(table))) == 11
    # The caller gathers one of every three batches.
    assert len(begun) == 7


def test_tables_of_several_columns_keep_their_names_and_rows(table):
    columns = {"pixels": table, "label": np.arange(RECORDS)}
    iterator = iter(loader(columns))
    for batch in iterator:
        np.testing.assert_array_equal(batch["label"], iterator.ids())
        np.testing.assert_array_equal(batch["pixels"], table[batch["label"]])


def test_strided_columns_are_gathered_by_caller(table, begun):
    reversed_rows = table[:, ::-1]
    iterator = iter(loader(reversed_rows))
    for batch in iterator:
        np.testing.assert_array_equal(batch, reversed_rows[iterator.ids()])
    assert begun == []


def test_restoring_drops_batches_gathered_ahead(table):
    reference = list(loader(table))
    iterator = iter(loader(table))
    next(iterator)
    early = iterator.get_state()
    for _ in range(3):
        next(iterator)
    late = iterator.get_state()
    for state, done in ((early, 1), (late, 4), (early, 1)):
        iterator.set_state(state)
        np.testing.assert_array_equal(next(iterator), reference[done])


def test_batches_outlive_their_iterator(table):
    iterator = iter(loader(table))
    next(iterator)
    second, ids = next(iterator), iterator.ids()
    iterator.close()
    del iterator
    np.testing.assert_array_equal(second, table[ids])


def test_worker_gathers_into_its_slot_without_threads(table, begun):
    memory = []

    def alloc(shape, dtype):
        memory.append(np.zeros(shape, dtype))
        return memory[-1]

    stream = loader(table)._program.open_stream(0)
    for _ in range(3):
        batch = stream.next(alloc)
        assert batch is memory[-1]
        np.testing.assert_array_equal(batch, table[stream.keys])
    assert begun == [BATCH] * 2


@pytest.mark.multiprocess
def test_fork_continues_without_affecting_parent(table):
    reference = list(loader(table))
    iterator = iter(loader(table))
    for _ in range(2):
        next(iterator)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            rest = list(iterator)
            same = map(np.array_equal, rest, reference[2:])
            status = 0 if len(rest) == len(reference) - 2 and all(same) else 2
            del iterator, rest
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for mine, expected in zip(iterator, reference[2:], strict=True):
        np.testing.assert_array_equal(mine, expected)


class Doubled(g.sources.TableSource):
    """Serves twice the values of the table."""

    def __getitem__(self, index):
        return 2 * super().__getitem__(index)


@pytest.mark.parametrize("face", ["loader", "chain"])
def test_table_with_custom_rows_is_read_by_row(table, face):
    source = Doubled(table)
    batches = loader(source)
    if face == "chain":
        batches = g.MapDataset.source(source).to_iter_dataset().batch(BATCH)
    rows = np.concatenate(list(batches))[:RECORDS]
    expected = 2 * table
    assert sorted(map(bytes, rows)) == sorted(map(bytes, expected))
