"""Compares KeyPlan with grain.MapDataset and grain.samplers.IndexSampler."""

import pickle
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill import _core

grain = pytest.importorskip("grain")
KeyPlan = _core.KeyPlan

BOUND = st.none() | st.integers(-12, 12)
STEPS = st.one_of(
    st.tuples(st.just("shuffle"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("repeat"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("repeat"), st.none(), st.booleans()),
    st.tuples(
        st.just("slice"),
        BOUND,
        BOUND,
        BOUND.filter(lambda step: step != 0),
    ),
)


def sliced(plan, *bounds):
    """Return a plan of the offsets of a slice, like that of a list."""
    start, stop, step = slice(*bounds).indices(len(plan))
    return plan.take(start, step, len(range(start, stop, step)))


class Indices(grain.MapDataset):
    """A dataset whose elements are the requested indices, not reduced to an epoch."""

    def __init__(self, count):
        super().__init__()
        self._count = count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return self.slice(index) if isinstance(index, slice) else index


def both(count, steps, folds=True):
    """Return the chain as Grain's dataset and as a plan, without invalid steps."""
    theirs = grain.MapDataset.range(count) if folds else Indices(count)
    ours = KeyPlan.range(count) if folds else KeyPlan.positions(count)
    for name, *arguments in steps:
        if name == "shuffle":
            theirs, ours = theirs.shuffle(*arguments), ours.shuffle(*arguments)
        elif name == "slice":
            theirs, ours = theirs.slice(slice(*arguments)), sliced(ours, *arguments)
        elif len(theirs) < 2**63 - 1:
            epochs, reseed = arguments
            theirs = theirs.repeat(epochs, reseed_each_epoch=reseed)
            ours = ours.repeat(epochs, reseed)
    return theirs, ours


# Grain takes 2**16 / count slow passes per index: few examples and no deadline.
@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 9) | st.integers(20_000, 65_000),
    steps=st.lists(STEPS, max_size=4),
    first=st.integers(-40, 40) | st.integers(-(2**61), 2**61),
    step=st.integers(-9, 9),
)
@example(10, [("slice", 7, None, -3), ("repeat", None, True)], 2**61, 5)
def test_fill_equals_grain(count, steps, first, step):
    theirs, ours = both(count, steps)
    assert len(ours) == len(theirs)
    out = np.empty(8, np.int64)
    if len(theirs) == 0:
        with pytest.raises(ZeroDivisionError):
            ours.fill(first, step, out)
        return
    ours.fill(first, step, out)
    positions = [first + k * step for k in range(8)]
    assert out.tolist() == [theirs[position] for position in positions]
    assert out.tolist() == [ours.key(position) for position in positions]


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 9) | st.integers(20_000, 65_000) | st.just(sys.maxsize),
    steps=st.lists(STEPS, max_size=4),
    positions=st.lists(st.integers(-40, 40) | st.integers(-(2**63), 2**63 - 1)),
)
@example(sys.maxsize, [], [2**63 - 1, -(2**63), -1])
@example(7, [("repeat", 3, False), ("slice", 1, None, 2)], [-1, 0, 9, 10, 11])
def test_positions_plan_equals_indices_that_grain_reads(count, steps, positions):
    theirs, ours = both(count, steps, folds=False)
    assert len(ours) == len(theirs)
    asked = np.array(positions, np.int64)
    if len(theirs) == 0:
        with pytest.raises(ZeroDivisionError) if positions else nullcontext():
            ours.keys(asked)
        return
    expected = [theirs[position] for position in positions]
    if all(-(2**63) <= key < 2**63 for key in expected):
        assert ours.keys(asked).tolist() == expected
    else:
        with pytest.raises(OverflowError, match="exceed"):
            ours.keys(asked)


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 9) | st.integers(20_000, 65_000),
    steps=st.lists(STEPS, max_size=4),
    positions=st.lists(st.integers(-40, 40) | st.integers(-(2**62), 2**62)),
)
def test_keys_equal_grain(count, steps, positions):
    theirs, ours = both(count, steps)
    if len(theirs) > 0:
        asked = np.array(positions, np.int64)
        assert ours.keys(asked).tolist() == [theirs[i] for i in positions]


@settings(deadline=None, max_examples=40)
@given(
    records=st.integers(1, 60) | st.integers(65_000, 70_000),
    shards=st.integers(1, 5),
    shard=st.integers(0, 4),
    drop_remainder=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_shard_and_shuffle_equal_index_sampler(
    records, shards, shard, drop_remainder, seed
):
    shard %= shards
    if records < shards or records == 65537:
        return
    options = grain.sharding.ShardOptions(shard, shards, drop_remainder)
    sampler = grain.samplers.IndexSampler(
        records, shard_options=options, shuffle=True, seed=seed
    )
    quotient, rest = divmod(records, shards)
    rest = 0 if drop_remainder else rest
    first = shard * quotient + min(shard, rest)
    size = quotient + (shard < rest)
    plan = KeyPlan.range(records).shard(first, first + size).shuffle(seed)
    out = np.empty(12, np.int64)
    plan.fill(size - 6, 1, out)  # Continues in the second epoch.
    expected = [
        sampler[(size - 6 + k) * shards + shard].record_key if size - 6 + k >= 0 else -1
        for k in range(12)
    ]
    assert out[max(0, 6 - size) :].tolist() == expected[max(0, 6 - size) :]


def test_range_start_and_step():
    plan = KeyPlan.range(3, 10, -4)
    assert [plan.key(i) for i in range(-1, 4)] == [2, 10, 6, 2, 10]


@pytest.mark.claim(
    "MapDataset.shuffle of n = 4^k + 1 elements, k >= 8, loses one and "
    "repeats another one"
)
@pytest.mark.parametrize("count", [65537, 262145])
def test_shuffle_of_4_to_k_plus_1_keys_is_permutation(count):
    out = np.empty(count, np.int64)
    KeyPlan.range(count).shuffle(3).fill(0, 1, out)
    assert np.array_equal(np.sort(out), np.arange(count))


def test_fill_of_large_range_equals_grain():
    plan = KeyPlan.range(1_000_000).shuffle(11)
    theirs = grain.MapDataset.range(1_000_000).shuffle(11)
    out = np.empty(3000, np.int64)
    plan.fill(998_000, 1, out)
    assert out.tolist() == [theirs[998_000 + k] for k in range(3000)]


def test_keys_do_not_change_positions():
    positions = np.arange(-300, 300)
    plan = KeyPlan.range(20_000).shuffle(4)
    expected = [plan.key(i) for i in range(-300, 300)]
    assert plan.keys(positions).tolist() == expected
    assert plan.keys(positions[::-3]).tolist() == expected[::-3]
    assert positions.tolist() == list(range(-300, 300))


def test_keys_of_unaligned_positions():
    buffer = np.arange(33, dtype=np.uint8)
    positions = buffer[1:].view(np.int64)
    keys = KeyPlan.positions(sys.maxsize).keys(positions)
    assert keys.tolist() == positions.tolist()


def test_keys_wrong_positions_raise():
    plan = KeyPlan.range(5)
    with pytest.raises(TypeError):
        plan.keys(np.arange(4, dtype=np.int32))
    with pytest.raises(TypeError):
        plan.keys([1, 2])
    with pytest.raises(ValueError, match="positions must have one dimension, got 2"):
        plan.keys(np.zeros((2, 2), np.int64))


PLANS = [
    KeyPlan.range(9),
    KeyPlan.positions(9),
    sliced(KeyPlan.positions(9), 2, None).shuffle(3),
    KeyPlan.range(9, 5, -2).shard(2, 8).shuffle(7),
    sliced(KeyPlan.range(9), None, None, -1).repeat(None, False),
    sliced(KeyPlan.range(9).repeat(2), 100, None).shuffle(0),
]


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_plan_equals_pickled_and_evaluated_repr(plan):
    for again in (pickle.loads(pickle.dumps(plan)), eval(repr(plan))):
        assert again == plan
        assert hash(again) == hash(plan)
        assert len(again) == len(plan)
        assert again.ops == plan.ops


def test_different_plans_differ():
    assert len(set(PLANS)) == len(PLANS)
    assert KeyPlan.range(3) != KeyPlan.range(4)
    assert KeyPlan.range(3) != 3


def test_repr_has_resolved_arguments():
    plan = sliced(KeyPlan.range(9).shard(1, 8).shuffle(4).repeat(), -3, None)
    assert repr(plan) == (
        "KeyPlan.range(9, 0, 1).shard(1, 8).shuffle(4).repeat(None, True)"
        ".take(9223372036854775804, 1, 3)"
    )


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: KeyPlan.range(-1), ValueError, "count must be at least 0, got -1"),
        (lambda: KeyPlan.positions(-1), ValueError, "count must be at least 0, got -1"),
        (lambda: KeyPlan.range(2, 2**62, 2**62), OverflowError, "64 bits"),
        (lambda: KeyPlan.range(5).shard(1, 6), ValueError, "epoch of 5"),
        (lambda: KeyPlan.range(5).take(0, 2, 4), ValueError, "epoch of 5"),
        (lambda: KeyPlan.range(5).shuffle(-1), ValueError, r"\(got seed=-1\)"),
        (lambda: KeyPlan.range(5).repeat(0), ValueError, "but got 0"),
        (lambda: KeyPlan.range(5).repeat(2**62), OverflowError, "64 bits"),
        (lambda: KeyPlan.range(5).repeat().repeat(), ValueError, "infinite"),
        (lambda: KeyPlan.range(0).key(0), ZeroDivisionError, "no positions"),
    ],
)
def test_wrong_arguments_raise(build, error, text):
    with pytest.raises(error, match=text):
        build()


def test_fill_wrong_array_raises():
    plan = KeyPlan.range(5)
    with pytest.raises(TypeError):
        plan.fill(0, 1, np.empty(4, np.int32))
    with pytest.raises(TypeError):
        plan.fill(0, 1, np.empty(8, np.int64)[::2])
    with pytest.raises(ValueError, match="one dimension"):
        plan.fill(0, 1, np.empty((2, 2), np.int64))
    frozen = np.empty(4, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        plan.fill(0, 1, frozen)
