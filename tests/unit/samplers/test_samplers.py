"""Tests that samplers match Grain's keys, generators, lengths, reprs and errors."""

import itertools
import pickle
import sys

import numpy as np
import pytest

from gristmill import records, samplers, sharding

grain = pytest.importorskip("grain")

SHARDS = [None, (0, 1, False), (1, 3, False), (2, 3, True), (0, 4, True)]
EPOCHS = [None, 1, 3]


def pair(name, n, shard=None, **kwargs):
    """Return our sampler and Grain's, made from the same arguments."""
    ours, theirs = getattr(samplers, name), getattr(grain.samplers, name)
    if shard is None:
        return ours(n, **kwargs), theirs(n, **kwargs)
    return (
        ours(n, sharding.ShardOptions(*shard), **kwargs),
        theirs(n, grain.sharding.ShardOptions(*shard), **kwargs),
    )


def described(sampler, index):
    try:
        metadata = sampler[index]
    except (IndexError, ZeroDivisionError) as error:
        return type(error)
    draw = None if metadata.rng is None else metadata.rng.random()
    return metadata.index, metadata.record_key, draw


@pytest.mark.parametrize("n", [1, 7, 100])
@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("epochs", EPOCHS)
@pytest.mark.parametrize("seed", [None, 0, 42, 2**32 - 1])
def test_index_sampler_matches_grain(n, shard, epochs, seed):
    for shuffle in {False, seed is not None}:
        arguments = {"num_epochs": epochs, "seed": seed, "shuffle": shuffle}
        ours, theirs = pair("IndexSampler", n, shard, **arguments)
        assert repr(ours) == repr(theirs)
        assert len(ours) == len(theirs)
        assert ours._end_index == theirs._max_index
        for index in [-1, *range(0, 3 * n + 2, 1 + n // 7)]:
            assert described(ours, index) == described(theirs, index)


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("seed", [None, 5])
def test_sequential_sampler_matches_grain(n, shard, seed):
    ours, theirs = pair("SequentialSampler", n, shard, seed=seed)
    assert repr(ours) == repr(theirs)
    assert len(ours) == len(theirs)
    for index in range(-1, n + 1):
        assert described(ours, index) == described(theirs, index)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SequentialSampler", {"num_records": 0}),
        ("IndexSampler", {"num_records": -1}),
        ("IndexSampler", {"num_records": 0, "num_epochs": 0}),
        ("IndexSampler", {"num_records": 2, "num_epochs": 0}),
        ("IndexSampler", {"num_records": 2, "shuffle": True}),
        ("IndexSampler", {"num_records": 2, "shuffle": True, "seed": "1"}),
        ("IndexSampler", {"num_records": 2, "seed": -1}),
        ("IndexSampler", {"num_records": 2, "shuffle": True, "seed": 2**32}),
    ],
)
def test_errors_of_bad_arguments_match_grain(name, arguments):
    with pytest.raises((ValueError, TypeError)) as theirs:
        getattr(grain.samplers, name)(**arguments)
    with pytest.raises((ValueError, TypeError)) as ours:
        getattr(samplers, name)(**arguments)
    assert (type(ours.value), str(ours.value)) == (
        type(theirs.value),
        str(theirs.value),
    )


@pytest.mark.parametrize("index", [-1, 10])
@pytest.mark.parametrize("name", ["IndexSampler", "SequentialSampler"])
def test_error_of_index_out_of_range_matches_grain(name, index):
    epochs = {"num_epochs": 1} if name == "IndexSampler" else {}
    ours, theirs = pair(name, 10, **epochs)
    with pytest.raises(IndexError) as expected:
        theirs[index]
    with pytest.raises(IndexError) as found:
        ours[index]
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize(("first", "step"), [(0, 1), (5, 3), (1, 6), (7, 4), (2, 12)])
def test_blocks_of_keys_match_single_keys(shard, first, step):
    sampler, _ = pair("IndexSampler", 101, shard, shuffle=True, seed=9)
    indices = range(first, first + 60 * step, step)
    keys = sampler.record_keys(first, step, 60)
    assert keys.dtype == np.int64
    assert keys.tolist() == [sampler[i].record_key for i in indices]


def test_sequential_blocks_match_single_keys():
    sampler = samplers.SequentialSampler(20)
    assert sampler.record_keys(1, 3, 5).tolist() == [1, 4, 7, 10, 13]


@pytest.mark.parametrize("name", ["IndexSampler", "SequentialSampler"])
def test_blocks_past_end_of_sampler_are_refused(name):
    epochs = {"num_epochs": 1} if name == "IndexSampler" else {}
    sampler = getattr(samplers, name)(10, **epochs)
    assert sampler.record_keys(9, 5, 1).tolist() == [9]
    assert sampler.record_keys(10, 1, 0).tolist() == []
    for bad in [(9, 1, 2), (-1, 1, 1)]:
        with pytest.raises(IndexError, match="out of bounds"):
            sampler.record_keys(*bad)
    with pytest.raises(ValueError, match="positive step"):
        sampler.record_keys(0, 0, 1)


@pytest.mark.claim(
    "A shuffle of n = 4^k + 1 records, k >= 8, loses record n - 1 and repeats "
    "another one"
)
def test_shuffle_is_complete_where_grain_loses_a_record():
    n = 4**8 + 1
    keys = samplers.IndexSampler(n, shuffle=True, seed=3).record_keys(0, 1, n)
    assert np.array_equal(np.sort(keys), np.arange(n))


def test_billionth_record_is_computed_directly():
    ours, theirs = pair("IndexSampler", 10**9, shuffle=True, seed=1)
    index = 5 * 10**9 + 7
    assert described(ours, index) == described(theirs, index)


def test_endless_samplers_have_maximum_length():
    assert len(samplers.IndexSampler(3)) == sys.maxsize


def test_pickled_sampler_gives_same_keys():
    sampler = samplers.IndexSampler(50, shuffle=True, seed=2, num_epochs=2)
    again = pickle.loads(pickle.dumps(sampler))
    assert repr(again) == repr(sampler)
    assert (
        again.record_keys(0, 1, 100).tolist() == sampler.record_keys(0, 1, 100).tolist()
    )


def test_every_shard_has_its_own_part():
    parts = [
        samplers.IndexSampler(10, sharding.ShardOptions(s, 3), num_epochs=1)
        .record_keys(s, 3, 3)
        .tolist()
        for s in range(3)
    ]
    assert parts == [[0, 1, 2], [4, 5, 6], [7, 8, 9]]
    assert len(set(itertools.chain(*parts))) == 9


class OneByOne(samplers.IndexSampler):
    def __getitem__(self, index):
        return records.RecordMetadata(index, 0)


class BothWays(OneByOne):
    def record_keys(self, first, step, count):
        return np.zeros(count, np.int64)


@pytest.mark.parametrize(
    ("sampler", "blocks"),
    [
        (samplers.IndexSampler(3), True),
        (samplers.SequentialSampler(3), True),
        (OneByOne(3), False),
        (BothWays(3), True),
        ([], False),
    ],
)
def test_subclass_is_read_in_blocks_only_if_it_defines_them(sampler, blocks):
    assert samplers.reads_in_blocks(sampler) == blocks


@pytest.mark.claim(
    "Arguments of a wrong type or value fail at the first element, often with "
    "AttributeError, AssertionError or ZeroDivisionError, or never"
)
@pytest.mark.parametrize("name", ["IndexSampler", "SequentialSampler"])
@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"num_records": 2.5}, TypeError, "num_records must be an int, got float"),
        ({"num_records": None}, TypeError, "num_records must be an int, got None"),
        ({"num_records": 2**63}, OverflowError, "num_records must be less than 2"),
        ({"shard_options": None}, TypeError, "must be a ShardOptions, got NoneType"),
        ({"shard_options": (0, 1)}, TypeError, "must be a ShardOptions, got tuple"),
        ({"seed": 1.5}, TypeError, "seed.* int.* got.* (type )?.*float"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 2**128}, ValueError, "seed"),
    ],
)
def test_bad_arguments_are_refused(name, arguments, kind, text):
    with pytest.raises(kind, match=f"(?i){text}"):
        getattr(samplers, name)(**({"num_records": 3} | arguments))


@pytest.mark.claim(
    "Arguments of a wrong type or value fail at the first element, often with "
    "AttributeError, AssertionError or ZeroDivisionError, or never"
)
def test_non_int_epochs_are_refused():
    with pytest.raises(TypeError, match="num_epochs must be an int, got float"):
        samplers.IndexSampler(3, num_epochs=1.5)


def test_non_int_index_is_refused():
    with pytest.raises(TypeError, match="index must be an int, got float"):
        samplers.IndexSampler(3)[1.0]


@pytest.mark.parametrize("shuffle", [False, True])
def test_empty_shard_raises_with_reason(shuffle):
    shard = sharding.ShardOptions(4, 5)
    sampler = samplers.IndexSampler(3, shard, shuffle, seed=0)
    for read in (lambda: sampler[4], lambda: sampler.record_keys(4, 5, 1)):
        with pytest.raises(ZeroDivisionError, match="owns none of the 3 records"):
            read()
    assert len(sampler.record_keys(4, 5, 0)) == 0
