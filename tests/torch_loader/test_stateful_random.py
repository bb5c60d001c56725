"""Tests that an epoch in random order resumes exactly."""

import itertools

import pytest
import torch
import torch.utils.data
import torchdata.stateful_dataloader
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from gristmill.torch import StatefulDataLoader
from support.forked import of_workers
from torch_loader.watched import canonical

OURS = StatefulDataLoader
THEIRS = torchdata.stateful_dataloader.StatefulDataLoader
SIZE = 11

pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:This DataLoader will create:UserWarning",
)

LOADERS = {
    "shuffle": lambda g: {"shuffle": True, "batch_size": 3},
    "shuffle, full": lambda g: {"shuffle": True, "batch_size": 3, "drop_last": True},
    "shuffle, no batches": lambda g: {"shuffle": True, "batch_size": None},
    "many": lambda g: {
        "sampler": RandomSampler(range(SIZE), num_samples=25, generator=g),
        "batch_size": 4,
    },
    "replacement": lambda g: {
        "sampler": RandomSampler(range(SIZE), True, 45, generator=g),
        "batch_size": 7,
    },
    "weighted": lambda g: {
        "sampler": WeightedRandomSampler([0.1] * SIZE, 20, generator=g),
        "batch_size": 3,
    },
    "weighted, no batches": lambda g: {
        "sampler": WeightedRandomSampler([0.1] * SIZE, 9, generator=g),
        "batch_size": None,
    },
    "subset": lambda g: {
        "sampler": SubsetRandomSampler([*range(SIZE)], generator=g),
        "batch_size": 2,
    },
    "subset, no batches": lambda g: {
        "sampler": SubsetRandomSampler([*range(SIZE)], generator=g),
        "batch_size": None,
    },
    "batch sampler": lambda g: {
        "batch_sampler": BatchSampler(RandomSampler(range(SIZE), generator=g), 2, True)
    },
}


def built(loader_class, kind, own, workers=0):
    generator = torch.Generator().manual_seed(8) if own else None
    options = dict(LOADERS[kind](generator))
    if workers:
        options.update(of_workers(workers))
    return loader_class(list(range(SIZE)), generator=generator, **options), generator


def taken(batches, count=99):
    return [canonical(batch) for batch in itertools.islice(batches, count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 99])
@pytest.mark.parametrize("own", [False, True], ids=["default", "own generator"])
@pytest.mark.parametrize("kind", LOADERS)
def test_rest_and_later_epochs_resume_exactly(kind, own, count):
    torch.manual_seed(4)
    loader, generator = built(OURS, kind, own)
    batches = iter(loader)
    taken(batches, count)
    state = loader.state_dict()
    random = torch.get_rng_state()
    rest = [] if state["_iterator_finished"] else taken(batches)
    expected = [rest, taken(loader), taken(loader), torch.get_rng_state().tolist()]

    torch.manual_seed(77)
    other, generator = built(OURS, kind, own)
    if own:
        generator.manual_seed(78)
    other.load_state_dict(state)
    torch.set_rng_state(random)
    rest = [] if state["_iterator_finished"] else taken(other)
    found = [rest, taken(other), taken(other), torch.get_rng_state().tolist()]
    assert found == expected


@pytest.mark.parametrize("own", [False, True], ids=["default", "own generator"])
@pytest.mark.parametrize("kind", LOADERS)
def test_batches_and_draws_match_torch(kind, own):
    found = []
    for loader_class in (OURS, torch.utils.data.DataLoader):
        torch.manual_seed(4)
        loader, generator = built(loader_class, kind, own)
        epochs = [taken(loader), taken(loader)]
        draws = [torch.get_rng_state().tolist()]
        draws += [generator.get_state().tolist()] if own else []
        found.append((epochs, draws))
    assert found[0] == found[1]


def test_state_before_first_batch_leaves_generator_and_resumes_exactly():
    torch.manual_seed(4)
    loader, _ = built(OURS, "shuffle", False)
    batches = iter(loader)
    random = torch.get_rng_state()
    state = loader.state_dict()
    assert torch.equal(torch.get_rng_state(), random)
    torch.rand(1)
    expected = [taken(batches), torch.rand(1), taken(loader)]
    other, _ = built(OURS, "shuffle", False)
    other.load_state_dict(state)
    torch.set_rng_state(random)
    torch.rand(1)
    assert [taken(other), torch.rand(1), taken(other)] == expected


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["shuffle", "shuffle, full", "shuffle, no batches"])
def test_epoch_resumes_between_our_loader_and_torchdata(kind, workers, count):
    for first, second in ((OURS, THEIRS), (THEIRS, OURS)):
        loader, _ = built(first, kind, False, workers)
        batches = iter(loader)
        taken(batches, count)
        state = loader.state_dict()
        other, _ = built(second, kind, False, workers)
        other.load_state_dict(state)
        assert taken(other) == taken(batches)


def test_torchdata_samplers_resume_in_our_loader():
    sampler = torchdata.stateful_dataloader.sampler.RandomSampler

    def ours(replacement):
        drawn = sampler(range(SIZE), replacement, 40)
        return StatefulDataLoader(range(SIZE), sampler=drawn, batch_size=3)

    for replacement in (False, True):
        loader = ours(replacement)
        batches = iter(loader)
        taken(batches, 5)
        other = ours(replacement)
        other.load_state_dict(loader.state_dict())
        assert taken(other) == taken(batches)


def test_torchdata_state_with_replacement_resumes():
    sampler = torchdata.stateful_dataloader.sampler.RandomSampler(range(SIZE), True, 40)
    loader = THEIRS(range(SIZE), sampler=sampler, batch_size=3)
    batches = iter(loader)
    taken(batches, 5)
    sampler = RandomSampler(range(SIZE), True, 40)
    other = StatefulDataLoader(range(SIZE), sampler=sampler, batch_size=3)
    other.load_state_dict(loader.state_dict())
    assert taken(other) == taken(batches)
