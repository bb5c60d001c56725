"""Tests of our DistributedSampler, which gives ranks equally many full batches."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import data

from gristmill.torch import (
    DataLoader,
    DistributedSampler,
    StatefulDataLoader,
    WithMask,
)
from support.dealing import deal_batches
from support.forked import of_workers

WAYS = ["drop", "pad", "wrap"]

# torchdata calls a deprecated function of torch.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


class Numbers(data.Dataset):
    """The numbers from 0 to length - 1."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return index


@given(
    length=st.integers(0, 40),
    ranks=st.integers(1, 6),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
)
def test_default_arguments_match_torch(length, ranks, shuffle, drop_last, seed, epoch):
    if not drop_last and not length:
        return  # torch's sampler divides by zero.
    for rank in range(ranks):
        arguments = (Numbers(length), ranks, rank, shuffle, seed, drop_last)
        ours, theirs = (
            DistributedSampler(*arguments),
            data.DistributedSampler(*arguments),
        )
        ours.set_epoch(epoch)
        theirs.set_epoch(epoch)
        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)
        assert ours.total_size == theirs.total_size


@given(
    how=st.sampled_from(WAYS),
    length=st.integers(0, 40),
    ranks=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    epoch=st.integers(0, 2),
)
def test_batches_of_ranks_match_dealt_batches(how, length, ranks, batch_size, epoch):
    numbers = WithMask(Numbers(length))
    order = data.DistributedSampler(numbers, 1, 0, shuffle=True, seed=4)
    order.set_epoch(epoch)
    expected = deal_batches(list(order) if length else [], ranks, batch_size, how)
    for rank in range(ranks):
        sampler = DistributedSampler(
            numbers, ranks, rank, seed=4, batch_size=batch_size, remainder=how
        )
        sampler.set_epoch(epoch)
        found = data.BatchSampler(sampler, batch_size, drop_last=False)
        batches = [tuple(numbers[index] for index in batch) for batch in found]
        assert batches == expected[rank]
        assert len(sampler) == batch_size * len(batches)


def masked_batches(loader):
    return [(values.tolist(), mask.tolist()) for values, mask in loader]


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_loader_gives_full_batches_with_mask(workers):
    numbers = WithMask(Numbers(10))
    found = []
    for rank in range(2):
        sampler = DistributedSampler(
            numbers, 2, rank, shuffle=False, batch_size=4, remainder="pad"
        )
        loader = DataLoader(numbers, 4, sampler=sampler, **of_workers(workers))
        found.append(masked_batches(loader))
    every, some = [True] * 4, [True, False, False, False]
    assert found == [
        [([0, 2, 4, 6], every), ([8, 0, 2, 4], some)],
        [([1, 3, 5, 7], every), ([9, 1, 3, 5], some)],
    ]


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_state_resumes_rest_of_its_epoch(workers):
    numbers = WithMask(Numbers(23))

    def loader():
        sampler = DistributedSampler(
            numbers, 2, 1, seed=3, batch_size=3, remainder="pad"
        )
        sampler.set_epoch(5)
        return StatefulDataLoader(numbers, 3, sampler=sampler, **of_workers(workers))

    expected = masked_batches(loader())
    assert len(expected) == 4
    first = loader()
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    again = loader()
    again.load_state_dict(state)
    assert masked_batches(again) == masked_batches(batches) == expected[1:]


@pytest.mark.multiprocess
def test_epochs_overlap():
    numbers = Numbers(20)
    sampler = DistributedSampler(numbers, 2, 1, batch_size=4, remainder="drop")
    loader = DataLoader(
        numbers,
        4,
        sampler=sampler,
        **of_workers(1),
        persistent_workers=True,
        overlap_epochs=True,
    )
    for epoch in range(3):
        sampler.set_epoch(epoch)
        expected = torch.tensor(list(sampler)).view(-1, 4)
        assert torch.equal(torch.stack(list(loader)), expected)


def test_sampler_is_instance_of_torch_sampler():
    sampler = DistributedSampler(Numbers(10), 2, 1, batch_size=4, remainder="drop")
    assert isinstance(sampler, data.DistributedSampler)
    assert sampler.drop_last
    assert (sampler.num_samples, sampler.total_size) == (4, 8)
    assert sampler.indices().dtype == np.int64
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"remainder": "keep"}, ValueError, "one of 'drop', 'pad', 'wrap', got 'keep'"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        (
            {"remainder": "wrap", "drop_last": True},
            ValueError,
            "drop_last=True .*remainder='wrap'",
        ),
        ({"remainder": "pad"}, TypeError, "got Numbers.*WithMask"),
        ({"rank": 2}, ValueError, "Invalid rank 2"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        DistributedSampler(Numbers(5), **{"num_replicas": 2, "rank": 0, **arguments})


class Together(Numbers):
    def __getitems__(self, indices):
        self.asked = indices
        return [{"x": index} for index in indices]


def test_mask_passes_reads_of_many_indices_on():
    numbers = Together(4)
    masked = WithMask(numbers, "real")
    assert masked.__getitems__([1, 6, 3]) == [
        {"x": 1, "real": True},
        {"x": 2, "real": False},
        {"x": 3, "real": True},
    ]
    assert numbers.asked == [1, 2, 3]


@pytest.mark.parametrize("index", [-1, 8])
def test_index_out_of_range_of_mask_is_refused(index):
    with pytest.raises(IndexError, match=rf"must be in \[0, 8\), got {index}"):
        WithMask(Numbers(4))[index]


def test_mask_refuses_objects_without_items():
    with pytest.raises(TypeError, match="length and items by index, got int"):
        WithMask(3)
    with pytest.raises(TypeError, match="a str or None, got int"):
        WithMask([1], 3)
    with pytest.raises(TypeError, match="index of WithMask must be an int, got str"):
        WithMask([1])["a"]
