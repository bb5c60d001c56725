"""Tests that a torch loader that drops its only batch warns at the user's line."""

import warnings

import pytest
import torch
from torch.utils.data import IterableDataset

from gristmill.torch import DataLoader, DistributedSampler, StatefulDataLoader

SAMPLES = list(range(7))


class Endless(IterableDataset):
    def __iter__(self):
        return iter(SAMPLES)


class OwnSampler(torch.utils.data.Sampler):
    def __iter__(self):
        return iter(SAMPLES)

    def __len__(self):
        return 1


class Growing(list):
    """A dataset that grows after its loader was made."""


@pytest.mark.parametrize("loader_class", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"shuffle": True},
        {"sampler": DistributedSampler(range(10), num_replicas=2, rank=0)},
        pytest.param({"num_workers": 1}, marks=pytest.mark.multiprocess),
    ],
)
def test_loader_that_drops_its_only_batch_warns(loader_class, arguments):
    loader = loader_class(SAMPLES, batch_size=8, drop_last=True, **arguments)
    message = r"gives no batch\. It has \d samples, batch_size=8 and drop_last=True"
    with pytest.warns(UserWarning, match=message) as caught:
        for _ in loader:
            raise AssertionError("a batch")
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("dataset", "arguments"),
    [
        (SAMPLES, {"batch_size": 7, "drop_last": True}),
        (SAMPLES, {"batch_size": 8}),
        (SAMPLES, {"batch_size": 2, "drop_last": True, "sampler": OwnSampler()}),
        (SAMPLES, {"batch_size": None}),
        ([], {"batch_size": 8, "drop_last": True}),
        (Endless(), {"batch_size": 3, "drop_last": True}),
    ],
)
def test_loader_with_possible_output_does_not_warn(dataset, arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(DataLoader(dataset, **arguments))
    assert caught == []


def test_grown_dataset_does_not_warn():
    dataset = Growing([1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(dataset, batch_size=4, drop_last=True)
        dataset.extend(SAMPLES)
        assert len(list(loader)) == 2
