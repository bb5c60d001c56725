"""Tests that functions which libraries replace in torch's classes are called."""

import functools
import itertools

import pytest
import torch.utils.data
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    dataloader,
    default_collate,
)
from torch.utils.data._utils import collate, fetch

from gristmill.torch import DataLoader, StatefulDataLoader, install, uninstall

TorchLoader = torch.utils.data.DataLoader
BASE = dataloader._BaseDataLoaderIter
SINGLE = dataloader._SingleProcessDataLoaderIter
SEVERAL = dataloader._MultiProcessingDataLoaderIter


def rows(offset=0):
    return TensorDataset(torch.arange(20) + offset)


def given(loader_class, make, epochs=2, **options):
    """Return the batches of some epochs, and a random number drawn after them."""
    torch.manual_seed(9)
    loader = loader_class(make(), 3, shuffle=True, **options)
    loader.skipped = 2
    found = [repr(batch) for _ in range(epochs) for batch in loader]
    return found, torch.randint(1 << 30, ()).item()


def given_everywhere(make, **options):
    install(everywhere=True)
    try:
        return given(TorchLoader, make, **options)
    finally:
        uninstall()


def assert_as_torch(make=rows, **options):
    """Compare all loaders with torch's, and return the result."""
    expected = given(TorchLoader, make, **options)
    assert given_everywhere(make, **options) == expected
    assert given(DataLoader, make, **options) == expected
    if "persistent_workers" not in options:
        assert given(StatefulDataLoader, make, **options) == expected
    return expected


def skip_in_init(monkeypatch):
    """Advance new iterators, like SpeechBrain when it resumes in mid-epoch."""
    own = BASE.__init__

    def init(self, loader):
        own(self, loader)
        skipped = list(itertools.islice(self._sampler_iter, loader.skipped))
        self._num_yielded = len(skipped)
        loader.skipped = 0

    # SpeechBrain gives its function the name and module of torch's.
    functools.update_wrapper(init, own)
    monkeypatch.setattr(BASE, "__init__", init)


def reset_later_only(monkeypatch):
    own = BASE._reset

    def reset(self, loader, first_iter=False):
        if not first_iter:
            own(self, loader, first_iter)

    monkeypatch.setattr(BASE, "_reset", functools.update_wrapper(reset, own))


def skip_in_reset(monkeypatch):
    own = BASE._reset

    def reset(self, loader, first_iter=False):
        own(self, loader, first_iter)
        next(self._sampler_iter)

    monkeypatch.setattr(BASE, "_reset", functools.update_wrapper(reset, own))


def skip_in_both(monkeypatch):
    skip_in_init(monkeypatch)
    reset_later_only(monkeypatch)


def draw_twice(monkeypatch):
    own = BASE._next_index

    def next_index(self):
        own(self)
        return own(self)

    monkeypatch.setattr(BASE, "_next_index", next_index)


def wrap_batches(monkeypatch):
    own = BASE.__next__
    monkeypatch.setattr(BASE, "__next__", lambda self: ("wrapped", own(self)))


WORKERS = {"num_workers": 2, "multiprocessing_context": "fork"}
OF_THE_BASE = [skip_in_init, skip_in_reset, skip_in_both, draw_twice, wrap_batches]


@pytest.mark.parametrize("replace", OF_THE_BASE)
def test_replaced_base_iterator_function_is_called(monkeypatch, replace):
    before = given(TorchLoader, rows)
    replace(monkeypatch)
    if replace is not skip_in_reset:  # torch never resets an iterator without workers.
        assert given(TorchLoader, rows) != before
    assert_as_torch()


@pytest.mark.multiprocess
@pytest.mark.parametrize("replace", [skip_in_init, skip_in_both, draw_twice])
def test_replaced_function_is_called_with_workers(monkeypatch, replace):
    replace(monkeypatch)
    assert_as_torch(epochs=1, **WORKERS)


@pytest.mark.multiprocess
def test_replaced_reset_is_called_in_each_epoch(monkeypatch):
    skip_in_reset(monkeypatch)
    assert_as_torch(persistent_workers=True, **WORKERS)


@pytest.mark.parametrize("kind", [BatchSampler, RandomSampler, SequentialSampler])
def test_replaced_sampler_iter_is_used(monkeypatch, kind):
    own = kind.__iter__
    monkeypatch.setattr(kind, "__iter__", lambda self: iter([*own(self)][::-1]))
    for loader_class in (DataLoader, StatefulDataLoader):
        given_in_order = list(loader_class(range(8), 3))
        assert repr(given_in_order) == repr(list(TorchLoader(range(8), 3)))
    assert_as_torch()


def test_sampler_class_patched_by_lightning_resumes(monkeypatch):
    # Lightning leaves this attribute, which does not affect drawing.
    monkeypatch.setattr(BatchSampler, "__setattr__", object.__setattr__, raising=False)
    loader = StatefulDataLoader(range(12), 3, shuffle=True)
    batches = iter(loader)
    next(batches)
    state, rest = loader.state_dict(), [batch.tolist() for batch in batches]
    loader = StatefulDataLoader(range(12), 3, shuffle=True)
    loader.load_state_dict(state)
    assert [batch.tolist() for batch in loader] == rest


def give_zeros(self, index):
    return torch.zeros(2)


def give_ones(self, indices):
    return [torch.ones(2)] * len(indices)


@pytest.mark.parametrize(
    ("kind", "name", "function", "make"),
    [
        (TensorDataset, "__getitem__", give_zeros, rows),
        (TensorDataset, "__getitems__", give_ones, rows),
        (Dataset, "__getitems__", give_ones, rows),
        (Subset, "__getitems__", give_ones, lambda: Subset(rows(), [3, 1])),
        (ConcatDataset, "__getitem__", give_zeros, lambda: ConcatDataset([rows()] * 2)),
    ],
)
def test_replaced_dataset_function_is_used(monkeypatch, kind, name, function, make):
    before = given(TorchLoader, make)
    monkeypatch.setattr(kind, name, function, raising=False)
    assert assert_as_torch(make) != before


def test_replaced_fetcher_function_is_used(monkeypatch):
    def fetch_sum(self, indices):
        return sum(indices)

    monkeypatch.setattr(fetch._MapDatasetFetcher, "fetch", fetch_sum)
    assert_as_torch()


def test_replaced_collation_rule_is_used(monkeypatch):
    own = collate.collate_tensor_fn

    @functools.wraps(own)
    def negated(batch, *, collate_fn_map=None):
        return -own(batch, collate_fn_map=collate_fn_map)

    monkeypatch.setitem(collate.default_collate_fn_map, torch.Tensor, negated)
    assert default_collate([torch.tensor(1)]).tolist() == [-1]
    assert_as_torch()


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [(SINGLE, "_next_data", {}), (SEVERAL, "_process_data", WORKERS)],
)
def test_replaced_torch_iterator_function_is_called(monkeypatch, kind, name, options):
    called, own = [], getattr(kind, name)

    def noted(self, *arguments):
        called.append(type(self))
        return own(self, *arguments)

    monkeypatch.setattr(kind, name, noted)
    expected = given(TorchLoader, rows, **options)
    called.clear()
    assert given_everywhere(rows, **options) == expected
    assert set(called) == {kind}
