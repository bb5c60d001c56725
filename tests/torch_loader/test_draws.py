"""Tests that native draws match torch's for datasets larger than a block."""

import itertools

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, WeightedRandomSampler

from gristmill._torch.indices.draws import as_list, sampler_items

MANY = 100_000


def assert_same_draws(make, batches=None):
    """Compare indices and generators after this many batches with torch's."""
    found = []
    for native in (True, False):
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(4)
        sampler = make(generator)
        indices = sampler_items(sampler) if native else iter(sampler)
        values = [as_list(batch) for batch in itertools.islice(indices, batches)]
        state = torch.get_rng_state().tolist(), generator.get_state().tolist()
        found.append((values, state))
    assert found[0] == found[1]


@pytest.mark.parametrize("own", [False, True], ids=["default", "own generator"])
@pytest.mark.parametrize("size", [1, 31, 32, 1000, MANY])
@pytest.mark.parametrize("batches", [1, 3, None])
def test_replacement_matches_torch(own, size, batches):
    def make(generator):
        sampler = RandomSampler(range(10**9), True, MANY, generator if own else None)
        return BatchSampler(sampler, size, False)

    assert_same_draws(make, batches if size < MANY else None)


def test_replacement_beyond_32_bits_matches_torch():
    class Huge:
        def __len__(self):
            return 2**40

    def make(_):
        return BatchSampler(RandomSampler(Huge(), True, 1000), 7, False)

    assert_same_draws(make)


@pytest.mark.parametrize("passes", [1, 2.5, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batches", [None, 9, 10, 11])
def test_several_passes_match_torch(passes, drop_last, batches):
    def make(generator):
        count = int(passes * 1000)
        sampler = RandomSampler(range(1000), False, count, generator)
        return BatchSampler(sampler, 100, drop_last)

    assert_same_draws(make, batches)


@pytest.mark.parametrize("own", [False, True])
def test_single_indices_match_torch(own):
    assert_same_draws(
        lambda g: RandomSampler(range(9000), generator=g if own else None)
    )


def test_weights_match_torch():
    def make(generator):
        sampler = WeightedRandomSampler(range(1, 50), 300, True, generator)
        return BatchSampler(sampler, 128, False)

    assert_same_draws(make)


def test_other_samplers_are_not_native():
    class Mine(RandomSampler):
        pass

    assert sampler_items(Mine(range(4))) is None
    assert sampler_items([[1, 2]]) is None
