"""Any number of hosts can resume a dataset, with no element lost or repeated."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill.errors import StateMismatch
from gristmill.experimental import (
    ElasticIterator,
    FirstFitPackIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
)
from gristmill.sharding import ShardOptions
from support.elements import same
from support.twins import grain


def share(lib, host, hosts):
    return lib.sharding.ShardOptions(shard_index=host, shard_count=hosts)


def hosts_of(ds, size, hosts, state=None):
    found = [ElasticIterator(ds, size, ShardOptions(h, hosts)) for h in range(hosts)]
    for iterator in found:
        if state is not None:
            iterator.set_state(json.loads(json.dumps(state)))
    return found


def step(iterators):
    """Return the elements of a global batch in order, and the state after it."""
    batches = [next(iterator) for iterator in iterators]
    states = [iterator.get_state() for iterator in iterators]
    assert all(state == states[0] for state in states)
    rows = [x for row in zip(*(b.tolist() for b in batches), strict=True) for x in row]
    return rows, states[0]


def numbers(n=100):
    return gristmill.MapDataset.range(n)


def mixed():
    parts = [
        numbers().to_iter_dataset(),
        numbers(200).map(lambda x: -x).to_iter_dataset(),
    ]
    return gristmill.IterDataset.mix(parts, [2, 1])


def window_shuffled():
    ds = numbers().to_iter_dataset().filter(lambda x: x % 3)
    return WindowShuffleIterDataset(ds, window_size=7, seed=1)


CHAINS = {
    "indices": lambda: numbers().shuffle(seed=4),
    "filter of indices": lambda: numbers().shuffle(seed=4).filter(lambda x: x % 3 != 1),
    "filter": lambda: numbers().to_iter_dataset().filter(lambda x: x % 5 != 1),
    "mix": mixed,
    "window shuffle": window_shuffled,
    "random steps": lambda: (
        window_shuffled()
        .map_with_index(lambda i, x: 1000 * i + x)
        .random_map(lambda x, rng: x + rng.random(), seed=5)
        .map(lambda x: x * 2)
    ),
    "zip": lambda: ZipIterDataset(
        [numbers().to_iter_dataset(), window_shuffled()], strict=False
    ).map(sum),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_any_host_count_resumes(chain):
    ds = CHAINS[chain]()
    expected = list(ds)
    state, given = None, []
    for size, hosts, steps in [(4, 2, 3), (6, 3, 2), (2, 1, 3), (8, 8, 1), (4, 4, 2)]:
        iterators = hosts_of(ds, size, hosts, state)
        for _ in range(steps):
            rows, state = step(iterators)
            given += rows
    assert len(given) == 46
    assert given == expected[:46]


def test_any_host_count_resumes_packed_rows():
    sequences = gristmill.MapDataset.range(1, 120).shuffle(seed=2)
    ds = sequences.map(lambda n: {"x": np.full(n % 13 + 1, n)}).to_iter_dataset()
    ds = FirstFitPackIterDataset(
        ds, length_struct={"x": 16}, num_packing_bins=5, seed=1
    )
    expected = [row["x"].tolist() for row in ds]
    state, given = None, []
    for size, hosts, steps in [(4, 2, 3), (6, 3, 2), (2, 1, 5), (4, 4, 2)]:
        iterators = hosts_of(ds, size, hosts, state)
        for _ in range(steps):
            batches = [next(iterator)["x"].tolist() for iterator in iterators]
            given += [row for rows in zip(*batches, strict=True) for row in rows]
        state = iterators[0].get_state()
    assert given == expected[: len(given)]
    assert len(given) == 42
    assert len(json.dumps(state)) < 500


@pytest.mark.multiprocess
@pytest.mark.parametrize("chain", ["indices", "filter"])
def test_workers_keep_all_elements(chain):
    ds = CHAINS[chain]()
    workers = gristmill.MultiprocessingOptions(num_workers=2)
    iterator = ElasticIterator(
        ds, 4, ShardOptions(0, 1), multiprocessing_options=workers
    )
    first = [x for _ in range(5) for x in next(iterator).tolist()]
    state = json.loads(json.dumps(iterator.get_state()))
    iterator.close()
    resumed = ElasticIterator(
        ds, 4, ShardOptions(0, 1), multiprocessing_options=workers
    )
    resumed.set_state(state)
    found = first + [x for batch in resumed for x in batch.tolist()]
    resumed.close()
    expected = list(ds)
    if chain == "indices":
        # Workers take turns, so each computes every second batch.
        assert found == expected
    else:
        assert sorted(found) == sorted(expected)


@given(st.data())
@settings(max_examples=25)
def test_map_datasets_match_grain(data):
    length, hosts = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4))
    size = hosts * data.draw(st.integers(1, 3))
    host = data.draw(st.integers(0, hosts - 1))
    start = data.draw(st.integers(0, length))

    def make(lib):
        ds = lib.MapDataset.range(length).shuffle(seed=1)
        return lib.experimental.ElasticIterator(ds, size, share(lib, host, hosts))

    ours, theirs = make(gristmill), make(grain())
    for iterator in (ours, theirs):
        iterator.set_state({"global_next_index": start})
    for mine, expected in itertools.zip_longest(ours, theirs):
        assert same(mine, expected)
        assert ours.get_state() == theirs.get_state()


def test_hosts_end_together_and_drop_partial_batch():
    ds = numbers(22).to_iter_dataset().filter(lambda x: x % 2)
    iterators = hosts_of(ds, 4, 2)
    found = [list(iterator) for iterator in iterators]
    assert [np.concatenate(batches).tolist() for batches in found] == [
        [1, 5, 9, 13],
        [3, 7, 11, 15],
    ]
    assert iterators[0].get_state() == iterators[1].get_state()
    assert iterators[0].get_state()["global_next_index"] == 8
    # A smaller batch contains the remaining elements.
    rows, _ = step(hosts_of(ds, 2, 1, iterators[0].get_state()))
    assert rows == [17, 19]


def test_error_in_stream_drops_element_on_all_hosts():
    def fail_at_two(x):
        if x == 2:
            raise RuntimeError(x)
        return True

    ds = numbers().to_iter_dataset().filter(fail_at_two)
    iterators = hosts_of(ds, 4, 2)
    for iterator in iterators:
        with pytest.raises(RuntimeError):
            next(iterator)
    assert step(iterators)[0] == [0, 1, 3, 4]


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_hosts_must_divide_the_batch(library):
    ds = library().MapDataset.range(9)
    iterator = library().experimental.ElasticIterator(ds, 4, share(library(), 0, 3))
    words = "Global batch size 4 is not divisible by shard count 3."
    with pytest.raises(ValueError, match=words):
        next(iterator)


def test_state_of_map_dataset_does_not_fit_a_stream():
    iterator = ElasticIterator(window_shuffled(), 2, ShardOptions(0, 1))
    with pytest.raises(StateMismatch, match="'stream'"):
        iterator.set_state({"global_next_index": 2})


def test_iter_always_returns_the_same_iterator():
    elastic = ElasticIterator(numbers(8), 2, ShardOptions(0, 1))
    iterator = iter(elastic)
    assert iter(elastic) is iterator
    assert [next(elastic).tolist(), next(iterator).tolist()] == [[0, 1], [2, 3]]
    iterator.start_prefetch()
    assert next(iterator).tolist() == [4, 5]
    elastic.close()
    with pytest.raises(ValueError, match="closed"):
        next(elastic)
