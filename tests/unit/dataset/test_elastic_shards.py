"""Hosts divide interleaved datasets as in Grain's development version."""

import asyncio
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import checkpoint
from gristmill.errors import StateMismatch
from gristmill.experimental import (
    ElasticIterator,
    InterleaveIterDataset,
    ParquetIterDataset,
)
from gristmill.sharding import NoSharding, ShardOptions
from gristmill.torch import as_tensors
from support.twins import grain


def interleaved(lengths, cycle, library=gristmill):
    """Interleave datasets of the given lengths; dataset i starts at 100 * i."""
    parts = [
        library.MapDataset.range(100 * i, 100 * i + length).to_iter_dataset()
        for i, length in enumerate(lengths)
    ]
    return library.experimental.InterleaveIterDataset(parts, cycle_length=cycle)


def hosts_of(ds, size, hosts):
    return [ElasticIterator(ds, size, ShardOptions(h, hosts)) for h in range(hosts)]


def saved(value):
    """Return a state after a round trip through JSON."""
    return json.loads(json.dumps(value))


def strided(parts, stop, cycle):
    """Interleave datasets that divide the numbers below `stop` by stride."""
    dealt = [gristmill.MapDataset.range(i, stop, parts) for i in range(parts)]
    dealt = [each.to_iter_dataset() for each in dealt]
    return InterleaveIterDataset(dealt, cycle_length=cycle)


# Expected elements, taken from Grain's development version.
AS_GRAIN = [
    (strided(4, 10, 2), (0, 2), 2, [[0], [2], [4], [6], [8]]),
    (strided(4, 10, 2), (1, 2), 0, [1, 3, 5, 7, 9]),
    (strided(4, 10, 2), (0, 2), 4, [[0, 2], [4, 6], [8]]),
    (interleaved([5, 5, 5], 3), (0, 1), 3, [[i, 100 + i, 200 + i] for i in range(5)]),
    (interleaved([2, 1], 1), (0, 1), 1, [[0], [1], [100]]),
    (strided(4, 10, 2).map(lambda x: -x), (0, 2), 4, [[0, -2], [-4, -6], [-8]]),
    (strided(4, 10, 2).filter(lambda x: x % 4), (0, 2), 2, [[2], [6]]),
]


@pytest.mark.parametrize(("ds", "host", "size", "expected"), AS_GRAIN)
def test_host_gets_the_elements_of_grain(ds, host, size, expected):
    iterator = ElasticIterator(ds, size, ShardOptions(*host))
    assert [np.asarray(each).tolist() for each in iterator] == expected


@given(st.data())
@settings(max_examples=40)
def test_shard_states_fit_any_host_count(data):
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=9))
    ds = interleaved(lengths, data.draw(st.integers(1, 4)))
    left = sorted(ds)
    states = {}
    for hosts in data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)):
        iterators = hosts_of(ds, 0, hosts)
        taken = []
        for host, iterator in enumerate(iterators):
            if states:
                mine = {k: v for k, v in states.items() if int(k) % hosts == host}
                iterator.set_shard_states(mine)
            taken += itertools.islice(iterator, data.draw(st.integers(0, 5)))
        found = [iterator.get_shard_states() for iterator in iterators]
        states = saved({k: v for each in found for k, v in each.items()})
        assert len(states) == len(lengths)
        for element in taken:
            left.remove(element)
    rest = [element for iterator in iterators for element in iterator]
    assert sorted(rest) == left


@given(st.data())
@settings(max_examples=40)
def test_shard_states_of_interleaving_match_grain(data):
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    cycle, steps = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 12))
    ours, theirs = (
        iter(interleaved(lengths, cycle, library)) for library in (gristmill, grain())
    )
    for iterator in (ours, theirs):
        list(itertools.islice(iterator, steps))
    states = theirs.get_shard_states()
    assert ours.get_shard_states() == states
    left = sorted(theirs)
    resumed = [
        iter(interleaved(lengths, cycle, library)) for library in (gristmill, grain())
    ]
    for iterator in resumed:
        iterator.set_shard_states(states)
    found, expected = map(list, resumed)
    assert sorted(found) == left
    # Grain restarts some datasets that have ended.
    assert found == expected or sorted(expected) != left


def test_ended_datasets_are_not_restarted():
    # Grain's own iterator restarts the third dataset.
    ds = interleaved([2, 2, 2], 2)
    iterator = iter(ds)
    ended = {"exhausted": 1, "state": {"next_index": 2}}
    begun = {"exhausted": 0, "state": {"next_index": 1}}
    iterator.set_shard_states([begun, begun, ended])
    assert iterator.get_shard_states()[2]["exhausted"] == 1
    state = iterator.get_state()
    assert list(iterator) == [1, 101]
    again = iter(ds)
    again.set_state(saved(state))
    assert list(again) == [1, 101]


@pytest.mark.parametrize("size", [0, 4])
def test_host_resumes_from_its_own_state(size):
    ds = interleaved([5, 3, 7, 2, 4], 2).map(lambda x: x + 1)
    first = ElasticIterator(ds, size, ShardOptions(0, 2))
    states, elements = [saved(first.get_state())], []
    for each in first:
        elements.append(np.asarray(each).tolist())
        states.append(saved(first.get_state()))
    for done, state in enumerate(states):
        again = ElasticIterator(ds, size, ShardOptions(0, 2))
        again.set_state(state)
        assert [np.asarray(each).tolist() for each in again] == elements[done:]
    first.close()
    first.set_state(states[1])
    assert np.asarray(next(first)).tolist() == elements[1]


def test_states_of_version_0_2_0_resume_as_one_stream():
    ds = interleaved([5, 3, 7], 2)
    stream = iter(ds)
    rest = list(ds)[4:]
    list(itertools.islice(stream, 4))
    state = saved({"global_next_index": 4, "stream": stream.get_state()})
    iterators = hosts_of(ds, 2, 2)
    for iterator in iterators:
        iterator.set_state(state)
    batches = [[batch.tolist() for batch in iterator] for iterator in iterators]
    found = [x for pair in zip(*batches, strict=True) for (x,) in pair]
    assert found == rest[: len(found)]
    assert len(found) == 10
    assert iterators[0].get_state()["global_next_index"] == 14
    iterators[0].set_state(hosts_of(ds, 2, 2)[0].get_state())
    assert next(iterators[0]).tolist() == [0]


def test_parquet_files_are_divided_among_hosts(tmp_path):
    table = pytest.importorskip("pyarrow").table
    write = pytest.importorskip("pyarrow.parquet").write_table
    files = [str(tmp_path / f"{i}.parquet") for i in range(3)]
    for i, file in enumerate(files):
        write(table({"x": [10 * i, 10 * i + 1]}), file)
    hosts = hosts_of(ParquetIterDataset(files).map(lambda row: row["x"]), 2, 2)
    found = [[batch.tolist() for batch in host] for host in hosts]
    assert found == [[[0], [20], [1], [21]], [[10], [11]]]
    # All hosts share a single file.
    alone = hosts_of(ParquetIterDataset(files[0]).map(lambda row: row["x"]), 2, 2)
    assert [next(host).tolist() for host in alone] == [[0], [1]]


@pytest.mark.parametrize("later", [1, 2, 3])
def test_checkpoint_fits_any_process_count(later, tmp_path, monkeypatch):
    ds = interleaved([5, 3, 7, 2], 2)
    handler = checkpoint.CheckpointHandler()
    taken = []
    for host, iterator in enumerate(hosts_of(ds, 2, 2)):
        taken += [x for _ in range(2) for x in next(iterator).tolist()]
        monkeypatch.setattr(checkpoint, "jax_process", lambda host=host: (host, 2))
        handler.save(tmp_path, iterator)
    for host, iterator in enumerate(hosts_of(ds, 6, later)):
        place = (host, later)
        monkeypatch.setattr(checkpoint, "jax_process", lambda place=place: place)
        assert handler.restore(tmp_path, iterator) is iterator
        taken += [x for batch in iterator for x in batch.tolist()]
    assert sorted(taken) == sorted(ds)


async def load(iterator, folder):
    await (await iterator.load(folder))


def restore(iterator, folder):
    assert checkpoint.CheckpointHandler().restore(folder, iterator) is iterator


@pytest.mark.parametrize("later", [1, 3])
@pytest.mark.parametrize(
    "continued",
    [
        restore,
        lambda elastic, folder: restore(iter(elastic), folder),
        lambda elastic, folder: restore(as_tensors(elastic), folder),
        lambda elastic, folder: asyncio.run(load(elastic, folder)),
    ],
)
def test_undivided_checkpoint_fits_any_process_count(
    later, continued, tmp_path, monkeypatch
):
    ds = gristmill.MapDataset.range(30).shuffle(seed=1)
    taken = []
    for host, elastic in enumerate(hosts_of(ds, 6, 2)):
        taken += next(elastic).tolist()
        monkeypatch.setattr(checkpoint, "jax_process", lambda host=host: (host, 2))
        checkpoint.CheckpointHandler().save(tmp_path, elastic)
    (tmp_path / "process_0-of-2.json").unlink()  # Any file will do.
    for host, elastic in enumerate(hosts_of(ds, 6, later)):
        place = (host, later)
        monkeypatch.setattr(checkpoint, "jax_process", lambda place=place: place)
        continued(elastic, tmp_path)
        taken += [x for batch in elastic for x in batch.tolist()]
    assert sorted(taken) == [*range(30)]


class OwnShards(checkpoint.Checkpointable):
    """A user's iterator with a state for each process."""

    shard_options = ShardOptions(0, 1)

    def get_state(self):
        return {}

    def set_state(self, state):
        raise AssertionError


class HidesParent(gristmill.IterDataset):
    """A user's step whose iterator does not name its parent."""

    def __iter__(self):
        return HidingIterator(iter(self._parent))


class HidingIterator(gristmill.DatasetIterator):
    def __init__(self, parent):
        super().__init__()
        self._hidden = parent

    def __next__(self):
        return next(self._hidden)

    def get_state(self):
        return self._hidden.get_state()

    def set_state(self, state):
        self._hidden.set_state(state)


@pytest.mark.parametrize(
    "item",
    [
        OwnShards(),
        ElasticIterator(HidesParent(interleaved([6] * 4, 1)), 6, NoSharding()),
    ],
)
def test_state_of_another_process_is_not_restored(item, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "jax_process", lambda: (0, 2))
    checkpoint.CheckpointHandler().save(tmp_path, item)
    monkeypatch.setattr(checkpoint, "jax_process", lambda: (0, 1))
    with pytest.raises(ValueError, match=r"process_0-of-1\.json does not exist"):
        restore(item, tmp_path)


def test_shard_states_of_other_hosts_are_rejected():
    iterator = ElasticIterator(interleaved([1, 1, 1], 1), 2, ShardOptions(1, 2))
    shard = {"exhausted": 0, "state": {"next_index": 0}}
    iterator.set_shard_states({"1": shard})
    with pytest.raises(StateMismatch, match=r"has datasets \[0\], expected every 2th"):
        iterator.set_shard_states({0: shard})
    with pytest.raises(StateMismatch, match="expected a list of 1"):
        iterator.set_shard_states({1: shard, 3: shard})
    with pytest.raises(StateMismatch, match="'exhausted'"):
        iterator.set_shard_states({1: {}})
    assert next(iterator).tolist() == [100]


def test_only_interleaved_datasets_have_shard_states():
    for ds in (
        gristmill.MapDataset.range(9),
        gristmill.MapDataset.range(9).to_iter_dataset(),
    ):
        iterator = ElasticIterator(ds, 3, NoSharding())
        with pytest.raises(NotImplementedError, match="get_shard_states is only"):
            iterator.get_shard_states()
        with pytest.raises(NotImplementedError, match="set_shard_states is only"):
            iterator.set_shard_states({})
        with pytest.raises(ValueError, match="global_batch_size must be at least 1"):
            ElasticIterator(ds, 0, NoSharding())


def test_hosts_must_divide_the_batch_of_shards():
    iterator = ElasticIterator(interleaved([2, 2], 1), 3, ShardOptions(0, 2))
    with pytest.raises(ValueError, match="3 is not divisible by shard count 2"):
        next(iterator)
