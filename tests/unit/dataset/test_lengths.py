"""`len` of an IterDataset is its number of elements, or a TypeError."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as grain
from gristmill import experimental
from gristmill.torch import as_tensors

MapDataset = grain.MapDataset
RANGE = MapDataset.range(7)
ITER = RANGE.to_iter_dataset()
NO_WORKERS = grain.MultiprocessingOptions(num_workers=0)


def is_odd(x):
    return x % 2 == 1


class Twice(experimental.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element):
        return [element] * 2


# Possible steps of a chain of integers, each with a random argument.
STEPS = {
    "map": lambda ds, n: ds.map(lambda x: x),
    "index": lambda ds, n: ds.map_with_index(lambda i, x: x),
    "random": lambda ds, n: ds.random_map(lambda x, rng: x, seed=n),
    "block": lambda ds, n: ds.block_map(list, block_size=n),
    "seed": lambda ds, n: ds.seed(n),
    "batch": lambda ds, n: ds.batch(n, batch_fn=sum),
    "full batches": lambda ds, n: ds.batch(n, drop_remainder=True, batch_fn=len),
    "limit": lambda ds, n: experimental.LimitIterDataset(ds, n),
    "repeat": lambda ds, n: experimental.RepeatIterDataset(ds, n),
    "cache": lambda ds, n: experimental.CacheIterDataset(ds),
    "window": lambda ds, n: experimental.WindowShuffleIterDataset(
        ds, window_size=n, seed=n
    ),
    "zip": lambda ds, n: grain.IterDataset.zip([ds, ITER], strict=False).map(sum),
    "mix": lambda ds, n: grain.IterDataset.mix([ds, ITER], [n, 2]),
    "interleave": lambda ds, n: experimental.InterleaveIterDataset(
        [ds, ITER, RANGE], cycle_length=n
    ),
    "streams": lambda ds, n: ds.mp_prefetch(NO_WORKERS, streams=n),
    "options": lambda ds, n: ds.set_options(experimental.DatasetOptions()),
}
CHAINS = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 5)), max_size=4
)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 20), CHAINS)
def test_length_is_the_number_of_elements(count, steps):
    ds = MapDataset.range(count).to_iter_dataset()
    for name, number in steps:
        ds = STEPS[name](ds, number)
    try:
        length = len(ds)
    except TypeError as error:
        # Some chains cannot be cut into streams.
        assert "has no len(): ValueError: " in str(error)
        return
    assert length == sum(1 for _ in ds)
    assert bool(ds) is True


@pytest.mark.parametrize(
    ("ds", "reason"),
    [
        (RANGE.filter(is_odd).to_iter_dataset(), "MapDataset.filter may drop"),
        (ITER.filter(is_odd).map(str), "FilterIterDataset is not known"),
        (experimental.FlatMapIterDataset(ITER, Twice()), "FlatMapIterDataset is not"),
        (RANGE.repeat().to_iter_dataset(), "it is infinite"),
        (RANGE.repeat().batch(1000).to_iter_dataset().map(str), "it is infinite"),
        (experimental.RepeatIterDataset(ITER), "it is infinite"),
        (
            experimental.InterleaveIterDataset(
                MapDataset.source([RANGE]), cycle_length=1
            ),
            "created while iterating",
        ),
        (
            grain.IterDataset.mix([ITER, ITER], [1, math.pi * 1e6]),
            "period of its proportions",
        ),
    ],
)
def test_unknown_length_is_a_type_error(ds, reason):
    with pytest.raises(TypeError, match=rf"has no len\(\): .*{reason}"):
        len(ds)
    assert ds
    assert list(itertools.islice(ds, 3))


def test_bounded_endless_dataset_has_a_length():
    endless = RANGE.repeat().to_iter_dataset()
    assert len(experimental.LimitIterDataset(endless, 5)) == 5
    assert len(grain.IterDataset.zip([endless, ITER], strict=False)) == 7
    assert len(grain.IterDataset.mix([endless, ITER])) == 15
    assert len(RANGE.repeat()[:9].to_iter_dataset()) == 9


def test_allowed_nones_count():
    ds = RANGE.filter(is_odd).to_iter_dataset(allow_nones=True)
    assert len(ds) == len(list(ds)) == 7


class Threes(grain.IterDataset):
    """A user's node without a length."""

    def __iter__(self):
        return iter(MapDataset.range(3).to_iter_dataset())


class Counted(Threes):
    def __len__(self):
        return 3


def test_user_node_length_comes_from_its_len():
    with pytest.raises(TypeError, match="Threes is not known"):
        len(Threes().map(str))
    assert len(Counted().batch(2)) == 2


@pytest.mark.multiprocess
def test_length_with_workers_sums_their_batches():
    ds = MapDataset.range(10).to_iter_dataset().batch(3)
    ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    assert len(ds) == len(list(ds)) == 4


def test_tensors_have_length_of_their_dataset():
    ds = RANGE.to_iter_dataset().batch(2)
    tensors = as_tensors(ds)
    next(tensors)
    # Counted from the beginning, like the iterators of torch.
    assert len(tensors) == len(ds) == 4
    assert len(list(tensors)) == 3
    assert len(as_tensors(grain.load(np.zeros(4), num_epochs=1, batch_size=2))) == 2


@pytest.mark.parametrize("given", [iter(ITER), iter([1]), ITER.filter(is_odd)])
def test_tensors_of_unknown_length_have_no_len(given):
    tensors = as_tensors(given)
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(tensors)
    assert tensors
    assert len(list(tensors)) > 0
