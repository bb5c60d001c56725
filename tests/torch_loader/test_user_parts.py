"""Tests that datasets and collate functions get the same arguments as from torch."""

import numpy as np
import pytest
import torch.utils.data
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from gristmill.torch import (
    BucketBatchSampler,
    DataLoader,
    DistributedSampler,
    StatefulDataLoader,
    install,
    uninstall,
)

TorchLoader = torch.utils.data.DataLoader
SIZE = 10


def types_of(thing):
    """Describe the exact types of an object and everything inside it."""
    name = f"{type(thing).__module__}.{type(thing).__qualname__}"
    if isinstance(thing, (list, tuple)):
        return f"{name}({', '.join(map(types_of, thing))})"
    if isinstance(thing, dict):
        return f"{name}({', '.join(map(types_of, thing.items()))})"
    return name


class Asked(Dataset):
    """Samples describe the requested key."""

    def __len__(self):
        return SIZE

    def __getitem__(self, key):
        return f"{types_of(key)} {key}"


class AskedTogether(Asked):
    """Batches describe the requested keys."""

    def __getitems__(self, keys):
        return [f"{types_of(keys)} {keys}"] * len(keys)


class Stream(IterableDataset):
    """An iterable dataset."""

    def __iter__(self):
        return iter(range(SIZE))


def described(samples):
    """Collate samples to their types and values."""
    return types_of(samples), samples


def batches(sampler, size=3):
    return BatchSampler(sampler, size, drop_last=False)


def buckets():
    return BucketBatchSampler(np.arange(SIZE), [4, 11], [2, 3, 3])


def distributed(kind):
    return kind(range(SIZE), num_replicas=2, rank=1)


LOADERS = {
    "in order": lambda: {"batch_size": 3},
    "shuffled": lambda: {"batch_size": 3, "shuffle": True},
    "samples": lambda: {"batch_size": None},
    "shuffled samples": lambda: {"batch_size": None, "shuffle": True},
    "bulk": lambda: {
        "batch_size": None, "sampler": batches(SequentialSampler(range(SIZE)))
    },
    "bulk shuffled": lambda: {
        "batch_size": None, "sampler": batches(RandomSampler(range(SIZE)))
    },
    "bulk weighted": lambda: {
        "batch_size": None,
        "sampler": batches(WeightedRandomSampler([1.0] * SIZE, 7)),
    },
    "bulk of a rank": lambda: {
        "batch_size": None, "sampler": batches(distributed(DistributedSampler))
    },
    "bulk of torch's rank": lambda: {
        "batch_size": None,
        "sampler": batches(distributed(torch.utils.data.DistributedSampler)),
    },
    "bulk buckets": lambda: {"batch_size": None, "sampler": buckets()},
    "batches of batches": lambda: {
        "batch_size": 2, "sampler": batches(SequentialSampler(range(SIZE)))
    },
    "batch sampler": lambda: {
        "batch_sampler": batches(SubsetRandomSampler(range(SIZE)))
    },
    "buckets": lambda: {"batch_sampler": buckets()},
    "replacement": lambda: {
        "batch_size": 4, "sampler": RandomSampler(range(SIZE), True, 9)
    },
}  # fmt: skip


def given(loader_class, dataset, options, epochs):
    """Return the types and reprs of a loader's batches."""
    torch.manual_seed(6)
    loader = loader_class(dataset, **options)
    return [(types_of(batch), repr(batch)) for _ in range(epochs) for batch in loader]


def assert_gives_as_torch(dataset, make, epochs=2):
    """Compare Gristmill's loaders, and torch's class after `install`, with torch's."""
    expected = given(TorchLoader, dataset, make(), epochs)
    for loader_class in (DataLoader, StatefulDataLoader):
        assert given(loader_class, dataset, make(), epochs) == expected
    install(everywhere=True)
    try:
        assert given(TorchLoader, dataset, make(), epochs) == expected
    finally:
        uninstall()


@pytest.mark.parametrize("collate_fn", [None, default_collate, described])
@pytest.mark.parametrize("how", LOADERS)
@pytest.mark.parametrize("dataset", [Asked(), AskedTogether()])
def test_types_of_keys_without_workers_match_torch(dataset, how, collate_fn):
    assert_gives_as_torch(dataset, lambda: LOADERS[how]() | {"collate_fn": collate_fn})


@pytest.mark.parametrize("collate_fn", [None, described])
@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_types_of_stream_samples_match_torch(batch_size, collate_fn):
    def make():
        return {"batch_size": batch_size, "collate_fn": collate_fn}

    assert_gives_as_torch(Stream(), make)


@pytest.mark.multiprocess
@pytest.mark.parametrize("how", ["bulk shuffled", "shuffled", "buckets"])
def test_types_of_keys_in_workers_match_torch(how):
    workers = {"num_workers": 2, "multiprocessing_context": "fork"}
    options = {"collate_fn": described, **workers}
    assert_gives_as_torch(AskedTogether(), lambda: LOADERS[how]() | options, epochs=1)


@pytest.mark.parametrize("loader_class", [DataLoader, StatefulDataLoader])
def test_advanced_sampler_iterator_skips_a_batch(loader_class):
    batches = iter(loader_class(range(SIZE), batch_size=3))
    assert next(batches._sampler_iter) == [0, 1, 2]
    assert next(batches).tolist() == [3, 4, 5]


@pytest.mark.parametrize("loader_class", [DataLoader, StatefulDataLoader])
def test_replaced_sampler_iterator_is_used(loader_class):
    batches = iter(loader_class(range(SIZE), batch_size=3, collate_fn=described))
    batches._sampler_iter = iter([[7], (8, 9)])
    assert [batch for _, batch in batches] == [[7], [8, 9]]
