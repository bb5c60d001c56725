"""Tests of GroupShuffleSampler: it gives each record once and each group about once."""

import itertools
import json
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import DataLoader, samplers, sharding, transforms
from gristmill.samplers import GroupShuffleSampler, _group_order

GROUPS = st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(any)
SEEDS = st.integers(0, 2**32 - 1)
WINDOWS = st.integers(1, 14)


class Numbers:
    """Records that are their own keys."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, key):
        return {"key": key}

    def __repr__(self):
        return f"Numbers({self.length})"


class Draw(transforms.RandomMap):
    """Adds a random number."""

    def random_map(self, element, rng):
        return {**element, "draw": rng.random()}


class Pid(transforms.Map):
    """Adds the id of the current process."""

    def map(self, element):
        return {**element, "pid": os.getpid()}


def all_keys(sampler):
    return sampler.record_keys(0, 1, len(sampler)).tolist()


def groups_of(groups, keys):
    return np.searchsorted(np.cumsum(groups), keys, "right")


@given(GROUPS, WINDOWS, SEEDS, st.integers(1, 5), st.integers(1, 3))
def test_every_record_comes_once_per_epoch(groups, window, seed, lanes, epochs):
    sampler = GroupShuffleSampler(groups, window=window, num_epochs=epochs, seed=seed)
    keys = np.array(all_keys(sampler.interleaved(lanes)))
    total = sum(groups)
    assert len(keys) == epochs * total
    for epoch in keys.reshape(epochs, total):
        assert sorted(epoch) == list(range(total))


@given(
    GROUPS,
    WINDOWS,
    SEEDS,
    st.integers(1, 5),
    st.integers(0, 60),
    st.integers(1, 9),
    st.integers(0, 40),
)
def test_blocks_of_keys_match_single_keys(
    groups, window, seed, lanes, first, step, count
):
    sampler = GroupShuffleSampler(groups, window=window, seed=seed).interleaved(lanes)
    again = GroupShuffleSampler(groups, window=window, seed=seed).interleaved(lanes)
    indices = range(first, first + step * count, step)
    keys = sampler.record_keys(first, step, count)
    assert keys.dtype == np.int64
    assert keys.tolist() == [again[i].record_key for i in reversed(indices)][::-1]


@given(GROUPS, WINDOWS, SEEDS, st.integers(1, 4), st.booleans())
def test_shards_are_disjoint_and_complete(groups, window, seed, shards, drop):
    total = sum(groups)
    if drop and total < shards:
        return
    parts = []
    for shard in range(shards):
        options = sharding.ShardOptions(shard, shards, drop)
        sampler = GroupShuffleSampler(
            groups, window=window, shard_options=options, num_epochs=1, seed=seed
        )
        count = len(range(shard, len(sampler), shards))
        parts.append(sampler.record_keys(shard, shards, count).tolist())
    found = list(itertools.chain(*parts))
    assert len(set(found)) == len(found) == (total - total % shards if drop else total)
    assert set(found) <= set(range(total))
    assert not drop or len({len(part) for part in parts}) == 1


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=12),
    WINDOWS,
    SEEDS,
    st.integers(1, 5),
)
def test_lane_opens_one_window_of_groups_at_a_time(groups, window, seed, lanes):
    sampler = GroupShuffleSampler(groups, window=window, num_epochs=1, seed=seed)
    keys = np.array(all_keys(sampler.interleaved(lanes)))
    decoded = 0
    for lane in range(lanes):
        seen: dict[int, None] = {}
        for group in groups_of(groups, keys[lane::lanes]).tolist():
            # All groups of a window are finished before another group starts.
            assert group in list(seen)[-window:] or group not in seen
            seen[group] = None
        decoded += len(seen)
    assert decoded <= len(groups) + lanes - 1


def test_records_of_a_window_are_mixed():
    sampler = GroupShuffleSampler([100] * 40, window=8, num_epochs=1, seed=3)
    groups = groups_of([100] * 40, np.array(all_keys(sampler)))
    first = groups[:800]
    assert len(set(first.tolist())) == 8
    # Independent draws from 8 groups repeat the last one 1 time in 8.
    repeats = (first[1:] == first[:-1]).mean()
    assert 0.08 < repeats < 0.17
    halves = np.bincount(first[:400], minlength=40)[list(set(first.tolist()))]
    assert halves.min() > 25


def test_epochs_have_different_orders_of_groups():
    sampler = GroupShuffleSampler([1] * 50, window=1, num_epochs=2, seed=0)
    keys = all_keys(sampler)
    assert keys[:50] != keys[50:]
    assert sorted(keys[:50]) == sorted(keys[50:])


def test_epochs_without_reshuffle_are_equal():
    sampler = GroupShuffleSampler([5, 4, 6], num_epochs=3, seed=1, reshuffle=False)
    keys = all_keys(sampler)
    assert keys[:15] == keys[15:30] == keys[30:]


def test_order_does_not_change_between_releases():
    sampler = GroupShuffleSampler([4, 0, 3, 5], window=2, num_epochs=2, seed=42)
    assert all_keys(sampler) == [
        *(3, 6, 1, 5, 4, 0, 2, 7, 8, 10, 11, 9),
        *(9, 10, 11, 8, 3, 2, 0, 1, 7, 5, 6, 4),
    ]
    assert all_keys(sampler.interleaved(2)) == [
        *(3, 7, 1, 6, 5, 8, 4, 10, 0, 11, 2, 9),
        *(9, 5, 10, 3, 11, 6, 8, 2, 0, 1, 7, 4),
    ]


# Windows sorted together, windows sorted singly, and windows too large to sort.
@pytest.mark.parametrize(
    ("groups", "window"),
    [
        ([1] * 20_000, 8),
        ([3000] * 9, 1),
        ([9000] * 5, 2),
        ([1] * 2000 + [40_000] + [0] * 300, 4),
    ],
)
@pytest.mark.parametrize("lanes", [1, 3])
def test_windows_of_any_size_are_mixed_in_order(groups, window, lanes):
    sampler = GroupShuffleSampler(groups, window=window, num_epochs=1, seed=6)
    sampler = sampler.interleaved(lanes)
    keys = np.array(all_keys(sampler))
    assert sorted(keys.tolist()) == list(range(sum(groups)))
    for lane in range(lanes):
        mine = keys[lane::lanes]
        found = groups_of(groups, mine)
        met, begins = np.unique(found, return_index=True)
        # Groups are numbered as the lane meets them.
        numbers = np.empty(len(groups), np.int64)
        numbers[met] = begins.argsort().argsort()
        # A window must be finished before the next one starts.
        windows = numbers[found] // window
        assert (np.diff(windows) >= 0).all()
        assert (np.diff(mine) != 1).mean() > 0.5
        block = sampler.record_keys(lane + 7 * lanes, lanes, 5000)
        assert block.tolist() == mine[7:5007].tolist()


def test_small_windows_are_mixed_together(monkeypatch):
    calls = []
    random_numbers = _group_order._random_numbers

    def counted(seed, low, high):
        calls.append(high - low)
        return random_numbers(seed, low, high)

    monkeypatch.setattr(_group_order, "_random_numbers", counted)
    sampler = GroupShuffleSampler([1] * 100_000, window=8, num_epochs=1, seed=6)
    for first in range(0, 100_000, 100):
        sampler.record_keys(first, 1, 100)
    assert len(calls) == 25
    assert sum(calls) == 100_000


def test_far_index_is_computed_directly():
    sampler = GroupShuffleSampler([7] * 1000, seed=5)
    far = 2**60 + 3
    block = sampler.record_keys(far, 2, 10)
    assert block.tolist() == [sampler[far + 2 * i].record_key for i in range(10)]
    assert len(sampler) == 2**63 - 1


def test_random_numbers_match_index_sampler():
    ours = GroupShuffleSampler([5, 5], num_epochs=1, seed=9)
    other = samplers.IndexSampler(10, shuffle=True, num_epochs=1, seed=9)
    assert [ours[i].rng.random() for i in range(10)] == [
        other[i].rng.random() for i in range(10)
    ]


def test_pickled_sampler_gives_same_keys():
    sampler = GroupShuffleSampler([5, 5], num_epochs=1, seed=9).interleaved(2)
    again = pickle.loads(pickle.dumps(sampler))
    assert all_keys(again) == all_keys(sampler)


def test_repr_shows_everything_that_decides_order():
    sampler = GroupShuffleSampler([1, 2], window=3, num_epochs=4, seed=5)
    assert repr(sampler) == (
        "GroupShuffleSampler(num_records=3, groups=2, hash_of_groups=0c730b69905c5ef7,"
        " window=3, shard_options=NoSharding(shard_index=0, shard_count=1,"
        " drop_remainder=False), num_epochs=4, seed=5, reshuffle=True)"
    )
    assert repr(GroupShuffleSampler([2, 1], seed=5)) != repr(
        GroupShuffleSampler([1, 2], seed=5)
    )


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"groups": []}, ValueError, "must be greater than 0"),
        ({"groups": [0, 0]}, ValueError, "must be greater than 0"),
        ({"groups": [3, -1]}, ValueError, "got -1 for group 1"),
        ({"groups": [1.5]}, TypeError, "Pass source.groups"),
        ({"groups": 5}, TypeError, "got int"),
        ({"window": 0}, ValueError, "window must be at least 1 group, got 0"),
        ({"window": 1.0}, TypeError, "window must be an int, got float"),
        ({"num_epochs": 0}, ValueError, "number of epochs must be greater than 0"),
        ({"seed": None}, ValueError, "Shuffling requires specifying a seed"),
        ({"seed": 2**32}, ValueError, "32-bit"),
        ({"shard_options": 3}, TypeError, "must be a ShardOptions, got int"),
        (
            {"shard_options": sharding.ShardOptions(0, 4, drop_remainder=True)},
            ValueError,
            "Use at most 3 shards",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        GroupShuffleSampler(**{"groups": [1, 2], "seed": 0, **arguments})


@pytest.mark.parametrize("index", [-1, 3])
def test_index_out_of_range_is_refused(index):
    sampler = GroupShuffleSampler([1, 2], num_epochs=1, seed=0)
    with pytest.raises(IndexError, match=r"allowed indices should be in \[0, 3\]"):
        sampler[index]
    with pytest.raises(IndexError):
        sampler.record_keys(index, 1, 1)


def loader(workers, streams=None, operations=()):
    sampler = GroupShuffleSampler(
        [7, 5, 9, 3, 8, 11, 2], window=2, seed=4, num_epochs=2
    )
    return DataLoader(
        data_source=Numbers(45),
        sampler=sampler,
        operations=[*operations, transforms.Batch(4)],
        worker_count=workers,
        streams=streams,
    )


def delivered(iterator):
    """Return the outputs of an iterator, with the position after each."""
    found = []
    for batch in iterator:
        state = json.loads(iterator.get_state())
        leaves = {name: leaf.tolist() for name, leaf in batch.items()}
        found.append((leaves, state["last_seen_indices"]))
    return found


@pytest.mark.multiprocess
@pytest.mark.parametrize("operations", [(), (Draw(),)])
def test_worker_batches_match_single_process(operations):
    alone = delivered(iter(loader(0, streams=2, operations=operations)))
    with_workers = delivered(iter(loader(2, operations=operations)))
    assert [batch for batch, _ in with_workers] == [batch for batch, _ in alone]
    assert [list(at.values()) for _, at in with_workers] == [
        list(at.values()) for _, at in alone
    ]
    keys = [key for batch, _ in alone for key in batch["key"]]
    assert sorted(keys) == sorted([*range(45)] * 2)


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_state_continues_with_any_worker_count(workers):
    whole = [batch for batch, _ in delivered(iter(loader(0, streams=2)))]
    second = iter(loader(workers))
    for stop in (0, 1, 7, len(whole) - 1, len(whole)):
        first = iter(loader(0, streams=2))
        for _ in range(stop):
            next(first)
        second.set_state(first.get_state())
        assert [batch for batch, _ in delivered(second)] == whole[stop:]
    second.close()


@pytest.mark.multiprocess
def test_worker_computes_whole_streams():
    pids = [set(batch["pid"].tolist()) for batch in loader(2, operations=[Pid()])]
    assert len(set(itertools.chain(*pids))) == 2
    assert len(set(itertools.chain(*pids[0::2]))) == 1
    assert len(set(itertools.chain(*pids[1::2]))) == 1
