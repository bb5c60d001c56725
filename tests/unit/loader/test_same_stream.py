"""Tests that a DataLoader and the equivalent chain of datasets give the same stream.

As in Grain, they differ in how they number records and draw random numbers. The last
tests check these rules.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as grain


class Affine(grain.transforms.Map):
    def map(self, x):
        return 3 * x + 1


class NotSeventh(grain.transforms.Filter):
    def filter(self, x):
        return x % 7 != 0


class Pair(grain.transforms.Map):
    def map(self, x):
        return {"x": np.full(2, x, np.int32), "name": f"n{x}"}


class Twice(grain.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, x):
        return [x, -x]


def loader(n, steps, *, sampler, workers=0, threads=0):
    return grain.DataLoader(
        data_source=grain.RangeDataSource(0, n, 1),
        sampler=sampler,
        operations=steps,
        worker_count=workers,
        read_options=grain.ReadOptions(threads, 4 if threads else 0),
    )


def dataset(n, steps, *, shuffle=None, epochs=1, shard=slice(None), threads=0):
    """Return the chain for a loader: shard, shuffle, repeat, then the steps."""
    chain = grain.MapDataset.source(grain.RangeDataSource(0, n, 1))[shard]
    if shuffle is not None:
        chain = chain.shuffle(shuffle)
    chain = chain.repeat(epochs).to_iter_dataset(
        grain.ReadOptions(threads, 4 if threads else 0)
    )
    for step in steps:
        if isinstance(step, grain.transforms.FlatMap):
            chain = grain.experimental.FlatMapIterDataset(chain, step)
        else:
            chain = chain.apply(step)
    return chain


def same(ours, theirs):
    """Return whether two elements are equal in types, dtypes, shapes and values."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(
            same(ours[key], theirs[key]) for key in theirs
        )
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    return ours == theirs


def assert_same_stream(left, right):
    left, right = list(left), list(right)
    assert len(left) == len(right)
    assert all(map(same, left, right))
    return left


STEPS = st.lists(
    st.sampled_from([Affine(), NotSeventh(), Twice()]), max_size=3
).flatmap(
    lambda steps: st.sampled_from(
        [
            steps,
            [*steps, Pair()],
            [*steps, grain.Batch(3)],
            [*steps, Pair(), grain.Batch(4, drop_remainder=True)],
        ]
    )
)


@given(
    n=st.integers(1, 40),
    steps=STEPS,
    threads=st.sampled_from([0, 2]),
    shard=st.sampled_from([(0, 1), (0, 3), (2, 3)]),
)
@settings(max_examples=40)
def test_sequential_sampler_matches_chain(n, steps, threads, shard):
    index, count = shard
    if n < count:
        return
    sampler = grain.SequentialSampler(n, shard_options=grain.ShardOptions(index, count))
    one = loader(n, steps, sampler=sampler, threads=threads)
    # This sampler deals the records out in turn.
    part = slice(index, None, count)
    assert_same_stream(one, dataset(n, steps, shard=part, threads=threads))


@given(
    n=st.integers(1, 40),
    steps=STEPS,
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
    shard=st.sampled_from([(0, 1), (1, 2)]),
)
@settings(max_examples=40)
def test_index_sampler_matches_shuffled_repeated_chain(n, steps, epochs, seed, shard):
    index, count = shard
    if n < count:
        return
    sampler = grain.IndexSampler(
        n,
        shard_options=grain.ShardOptions(index, count, drop_remainder=True),
        shuffle=True,
        num_epochs=epochs,
        seed=seed,
    )
    # This sampler cuts the records into contiguous parts.
    size = n // count
    part = slice(index * size, index * size + size)
    assert_same_stream(
        loader(n, steps, sampler=sampler),
        dataset(n, steps, shuffle=seed, epochs=epochs, shard=part),
    )


def test_batches_of_map_dataset_match_loader():
    steps = [Affine(), Pair()]
    sampler = grain.IndexSampler(37, shuffle=True, num_epochs=1, seed=5)
    batch = grain.Batch(8)
    one = loader(37, [*steps, batch], sampler=sampler)
    by_position = grain.MapDataset.range(37).shuffle(5).apply([*steps, batch])
    found = assert_same_stream(one, by_position)
    assert len(found) == 5
    assert found[0]["x"].shape == (8, 2)


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_worker_order_matches_chain(workers):
    steps = [Affine(), Pair(), grain.Batch(4)]
    sampler = grain.IndexSampler(41, shuffle=True, num_epochs=2, seed=9)
    one = loader(41, steps, sampler=sampler, workers=workers)
    two = dataset(41, steps, shuffle=9, epochs=2).mp_prefetch(
        grain.MultiprocessingOptions(num_workers=workers)
    )
    found = assert_same_stream(one, two)
    assert sum(len(batch["name"]) for batch in found) == 82


def test_index_is_global_in_loader_and_local_in_chain():
    class Number(grain.transforms.MapWithIndex):
        def map_with_index(self, index, x):
            return index, x

    sampler = grain.SequentialSampler(6, shard_options=grain.ShardOptions(1, 2))
    one = loader(6, [Number()], sampler=sampler)
    two = dataset(6, [Number()], shard=slice(1, None, 2))
    assert list(one) == [(1, 1), (3, 3), (5, 5)]
    assert list(two) == [(0, 1), (1, 3), (2, 5)]


@pytest.mark.claim("Random numbers")
def test_loader_draws_by_record_and_chain_by_position():
    class Draw(grain.transforms.RandomMap):
        def random_map(self, x, rng):
            return int(rng.integers(1000))

    sampler = grain.IndexSampler(3, shuffle=False, num_epochs=1, seed=7)
    one = loader(3, [Draw()], sampler=sampler)
    two = grain.MapDataset.range(3).random_map(Draw(), seed=7)

    def by_record(index):
        return np.random.Generator(np.random.Philox(key=7 + index))

    def by_position(index):
        bits = np.random.Philox(7)
        state = bits.state
        state["state"]["counter"] = np.array([0, 0, 0, index], np.uint64)
        bits.state = {**state, "buffer_pos": 4, "has_uint32": 0}
        return np.random.Generator(bits)

    assert list(one) == [int(by_record(i).integers(1000)) for i in range(3)]
    assert list(two) == [int(by_position(i).integers(1000)) for i in range(3)]
    assert list(one) != list(two)
