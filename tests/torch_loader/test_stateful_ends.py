"""Tests that a state taken at the end of an epoch resumes with the next epoch."""

import itertools
import json
import random

import numpy as np
import pytest
import torch
import torchdata.stateful_dataloader
from torch.utils.data import (
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from gristmill.torch import StatefulDataLoader
from support.forked import of_workers
from torch_loader.watched import canonical

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.filterwarnings(
        "ignore:'set_vital' is deprecated:UserWarning",
        "ignore:This DataLoader will create:UserWarning",
        "ignore:Neither the dataset nor its iterator:UserWarning",
    ),
]


def drawn():
    return [
        torch.randint(1000, ()).item(),
        random.randrange(1000),
        np.random.randint(1000),  # noqa: NPY002 (user code draws from it)
    ]


class Draws(list):
    """Numbers, with random numbers drawn in the worker that reads them."""

    def __init__(self):
        super().__init__(range(9))

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is None:
            return [index]
        return [index, *drawn()]


class StatefulDraws(Draws):
    """Adds a count of reads in each worker's copy."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __getitem__(self, index):
        self.count += 1
        return [self.count, *super().__getitem__(index)]

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class DrawsInTurn(IterableDataset):
    """An iterable dataset of random numbers."""

    def __iter__(self):
        for _ in range(5):
            yield drawn()


class Shuffled:
    """A user-defined sampler that draws in `__iter__`."""

    def __iter__(self):
        return iter(torch.randperm(9).tolist())

    def __len__(self):
        return 9


DATASETS = {
    "draws": Draws,
    "stateful draws": StatefulDraws,
    "draws in turn": DrawsInTurn,
}
ORDERS = {
    "in order": lambda own: {},
    "shuffled": lambda own: {"shuffle": True},
    "own": lambda own: {"sampler": RandomSampler(range(9), generator=own)},
    "with replacement": lambda own: {"sampler": RandomSampler(range(9), True, 7)},
    "subset": lambda own: {"sampler": SubsetRandomSampler(range(5))},
    "weighted": lambda own: {"sampler": WeightedRandomSampler([0.1] * 9, 9)},
    "user's": lambda own: {"sampler": Shuffled()},
    "batch sampler": lambda own: {
        "batch_sampler": torch.utils.data.BatchSampler(Shuffled(), 2, False)
    },
}


def made(dataset, order, own, workers, loader_class=StatefulDataLoader, **options):
    """Return a loader with its own generator or the default one."""
    generator = torch.Generator().manual_seed(random.randrange(1 << 20))
    options.update(ORDERS[order](generator))
    if "batch_sampler" not in options:
        options["batch_size"] = 2
    if own:
        options["generator"] = generator
    if workers:
        options.update(of_workers(workers))
        options.setdefault("snapshot_every_n_steps", 3)
    return loader_class(DATASETS[dataset](), **options)


def epoch(loader):
    return [canonical(batch) for batch in itertools.islice(loader, 40)]


def state_and_next_epoch(*arguments, **options):
    torch.manual_seed(7)
    loader = made(*arguments, **options)
    epoch(loader)
    state = json.loads(json.dumps(loader.state_dict(), default=torch.Tensor.tolist))
    return state, epoch(loader)


CASES = [
    ("draws", order, own, workers)
    for order, own, workers in itertools.product(ORDERS, [False, True], [0, 2])
] + [
    (dataset, "in order", own, 2)
    for dataset in ("stateful draws", "draws in turn")
    for own in (False, True)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_resumed_next_epoch_matches_original(case):
    state, expected = state_and_next_epoch(*case)
    torch.manual_seed(99)
    loader = made(*case)
    loader.load_state_dict(state)
    assert epoch(loader) == expected


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("in_order", [False, True])
def test_random_state_of_persistent_workers_is_resumed(dataset, in_order):
    case = (dataset, "in order", False, 1)
    options = {"persistent_workers": True, "in_order": in_order}
    state, expected = state_and_next_epoch(*case, **options)
    torch.manual_seed(99)
    loader = made(*case, **options)
    loader.load_state_dict(state)
    assert epoch(loader) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_resume_does_not_change_default_generator(workers):
    case = ("draws", "shuffled", False, workers)
    state, _ = state_and_next_epoch(*case)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    loader = made(*case)
    loader.load_state_dict(state)
    epoch(loader)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_restored_default_generator_resumes_all_epochs(workers):
    case = ("draws", "shuffled", False, workers)
    torch.manual_seed(7)
    loader = made(*case)
    epoch(loader)
    state, generator = loader.state_dict(), torch.get_rng_state()
    expected = [epoch(loader) for _ in range(3)]
    loader = made(*case)
    loader.load_state_dict(state)
    torch.set_rng_state(generator)
    assert [epoch(loader) for _ in range(3)] == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_own_generator_resumes_all_epochs(workers):
    case = ("draws", "shuffled", True, workers)
    loader = made(*case)
    epoch(loader)
    state = loader.state_dict()
    expected = [epoch(loader) for _ in range(3)]
    loader = made(*case)
    loader.load_state_dict(state)
    assert [epoch(loader) for _ in range(3)] == expected


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_loaded_state_is_returned_again(workers, persistent):
    options = {"persistent_workers": True} if persistent and workers else {}
    case = ("draws", "shuffled", False, workers)
    state, expected = state_and_next_epoch(*case, **options)
    middle = made(*case, **options)
    middle.load_state_dict(state)
    again = middle.state_dict()
    torch.manual_seed(99)
    loader = made(*case, **options)
    loader.load_state_dict(again)
    assert epoch(loader) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_state_without_generator_draws_like_torch(workers):
    case = ("draws", "shuffled", False, workers)
    state, _ = state_and_next_epoch(*case)
    del state["_generators"]
    torch.manual_seed(5)
    expected = epoch(made(*case))
    torch.manual_seed(5)
    loader = made(*case)
    loader.load_state_dict(state)
    assert epoch(loader) == expected


@pytest.mark.parametrize("persistent", [False, True])
def test_state_after_shutdown_needs_no_workers(persistent):
    loader = made("draws", "shuffled", False, 2, persistent_workers=persistent)
    batches = iter(loader)
    epoch(batches)
    batches._shutdown_workers()
    assert loader.state_dict()["_iterator_finished"]


@pytest.mark.parametrize("persistent", [False, True])
def test_torchdata_loader_accepts_our_additions(persistent):
    case = ("draws", "in order", False, 2)
    state, _ = state_and_next_epoch(*case, persistent_workers=persistent)
    assert "_generators" in state
    loader = made(
        *case,
        loader_class=torchdata.stateful_dataloader.StatefulDataLoader,
        persistent_workers=persistent,
    )
    loader.load_state_dict(state)
    assert [batch[1][0][-1] for batch in epoch(loader)]
