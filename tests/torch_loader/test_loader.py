"""Tests that our loader has the interfaces of torch's that scripts and trainers use."""

import copy
import inspect
import pickle
import sys
import types
import warnings
import weakref

import pytest
import torch
import torch.utils.data
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from gristmill._torch import loader as loader_module
from gristmill.torch import DataLoader, StatefulDataLoader

TorchLoader = torch.utils.data.DataLoader
OURS = ("max_restarts", "reorder_window", "memory_limit", "overlap_epochs")
FROZEN = (
    "batch_size", "batch_sampler", "sampler", "drop_last", "dataset",
    "persistent_workers",
)  # fmt: skip


class Numbers(torch.utils.data.Dataset):
    """The numbers below 10."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index


class Named(DataLoader[int]):
    """A user-defined subclass with a type parameter and another name."""


def numbers(batches):
    return [batch.tolist() for batch in batches]


def test_signature_is_torchs_with_four_more_keywords():
    theirs = inspect.signature(TorchLoader.__init__).parameters
    ours = inspect.signature(DataLoader.__init__).parameters
    assert list(ours) == [*theirs, *OURS]
    for name, parameter in theirs.items():
        assert ours[name].kind is parameter.kind
        assert ours[name].default is parameter.default
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in OURS)


def test_every_argument_is_an_attribute():
    loader = DataLoader(Numbers(), 2, num_workers=1, max_restarts=2, reorder_window=9)
    settings = {**vars(loader), "multiprocessing_context": None}
    names = set(inspect.signature(DataLoader.__init__).parameters)
    assert names - {"self", "shuffle"} <= set(settings)
    assert (loader.max_restarts, loader.reorder_window) == (2, 9)
    assert set(vars(loader)) - set(vars(TorchLoader(Numbers()))) == set(OURS)


def test_positional_arguments_match_torch():
    generator = torch.Generator()
    given = (3, None, [1, 2], None, 0, list, False, True, 0, None, None, generator)
    ours, theirs = DataLoader(Numbers(), *given), TorchLoader(Numbers(), *given)
    assert list(ours) == list(theirs) == []
    assert ours.generator is generator


def test_samplers_are_torch_classes():
    shuffled, plain = DataLoader(Numbers(), shuffle=True), DataLoader(Numbers())
    assert type(shuffled.batch_sampler) is type(plain.batch_sampler) is BatchSampler
    assert type(shuffled.sampler) is RandomSampler
    assert type(plain.sampler) is SequentialSampler


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize("kind", [DataLoader, Named])
def test_attributes_frozen_by_torch_are_frozen(name, kind):
    loader = kind(Numbers())
    expected = f"{name} attribute should not be set after {kind.__name__} is initial"
    with pytest.raises(ValueError, match=expected):
        setattr(loader, name, None)


@pytest.mark.parametrize("kind", [DataLoader, Named])
def test_known_workarounds_for_frozen_attributes_work(kind):
    first = kind(Numbers(), batch_size=5)
    first._DataLoader__initialized = False
    first.batch_sampler = BatchSampler([4, 3, 2], 2, False)
    first._DataLoader__initialized = True
    assert numbers(first) == [[4, 3], [2]]
    second = kind(Numbers(), batch_size=5)
    object.__setattr__(second, "batch_sampler", [[7], [8, 9]])
    assert numbers(second) == [[7], [8, 9]]
    second.anything = 3
    assert second.anything == 3


def test_class_is_generic():
    assert DataLoader[int](Numbers(), 10).batch_size == 10
    assert issubclass(Named, TorchLoader)
    assert numbers(Named(Numbers(), 5)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_loaders_can_be_pickled_and_copied():
    loader = DataLoader(Numbers(), 4, memory_limit=None, drop_last=True)
    for other in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
        assert type(other) is DataLoader
        assert numbers(other) == numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_iterators_are_torch_iterators_and_not_picklable():
    batches = iter(DataLoader(Numbers()))
    assert isinstance(batches, _SingleProcessDataLoaderIter)
    assert len(batches) == 10
    with pytest.raises(NotImplementedError):
        pickle.dumps(batches)


def test_changes_of_samplers_take_effect():
    loader = DataLoader(Numbers(), 5)
    loader.batch_sampler.sampler = [9, 8]
    assert numbers(loader) == [[9, 8]]
    loader.batch_sampler.sampler = SequentialSampler(range(3))
    assert numbers(loader) == [[0, 1, 2]]
    loader.collate_fn = sum
    assert list(loader) == [3]


def test_batch_size_changed_in_epoch_matches_torch():
    found = []
    for kind in (DataLoader, TorchLoader):
        loader = kind(Numbers(), 2)
        batches = iter(loader)
        next(batches)
        loader.batch_sampler.batch_size = 3
        found.append(numbers(batches))
    assert found[0] == found[1] == [[2, 3, 4], [5, 6, 7], [8, 9]]


def test_dataset_may_grow_between_epochs():
    dataset = [0, 1]
    loader = DataLoader(dataset, 2)
    assert numbers(loader) == [[0, 1]]
    dataset += [2, 3]
    assert (numbers(loader), len(loader)) == ([[0, 1], [2, 3]], 2)


@pytest.mark.parametrize("replacement", [False, True])
def test_dataset_grown_in_epoch_matches_torch(replacement):
    found = []
    for kind in (DataLoader, StatefulDataLoader, TorchLoader):
        torch.manual_seed(2)
        dataset = list(range(40))
        batches = iter(kind(dataset, 8, sampler=RandomSampler(dataset, replacement)))
        first = next(batches).tolist()
        dataset += range(40, 49)
        found.append([first, *numbers(batches)])
    assert found[0] == found[1] == found[2]
    assert sum(map(len, found[0])) > 40


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("loader_class", "how"),
    [(DataLoader, "fork"), (DataLoader, "launcher"), (StatefulDataLoader, "fork")],
)
def test_referenced_workers_do_not_keep_dataset_alive(loader_class, how):
    dataset = Numbers()
    kept = weakref.ref(dataset)
    loader = loader_class(dataset, num_workers=1, multiprocessing_context=how)
    batches = iter(loader)
    next(batches)
    [worker] = batches._workers
    assert worker.is_alive()
    del dataset, loader, batches
    assert kept() is None
    worker.join()
    assert not worker.is_alive()
    assert worker.exitcode == 0


def test_two_iterators_are_independent():
    loader = DataLoader(Numbers(), 6)
    assert numbers(sum(zip(loader, loader, strict=True), ())) == 2 * [
        [0, 1, 2, 3, 4, 5]
    ] + 2 * [[6, 7, 8, 9]]


@pytest.mark.parametrize("iterable", [False, True])
def test_profiles_show_the_loader(iterable):
    loader = DataLoader(torch.utils.data.ChainDataset([]) if iterable else Numbers())
    with torch.profiler.profile() as profile:
        list(loader)
    names = {event.key for event in profile.key_averages()}
    assert "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" in names


def test_profiler_range_is_opened_only_with_profiler(monkeypatch):
    opened = []
    original = torch.autograd.profiler.record_function.__enter__

    def enter(self):
        opened.append(self.name)
        return original(self)

    monkeypatch.setattr(torch.autograd.profiler.record_function, "__enter__", enter)
    assert len(list(DataLoader(Numbers()))) == len(Numbers())
    assert opened == []
    list(torch.utils.data.DataLoader(Numbers()))
    assert len(opened) == len(Numbers()) + 1


def test_collation_uses_extended_map(monkeypatch):
    collations = torch.utils.data._utils.collate.default_collate_fn_map
    monkeypatch.setitem(collations, torch.Tensor, lambda batch, **_: len(batch))
    rows = torch.utils.data.TensorDataset(torch.arange(5))
    assert list(DataLoader(rows, 2)) == [[2], [2], [1]]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_restarts": -1}, ValueError, "max_restarts must be at least 0, got -1"),
        (
            {"max_restarts": 101},
            ValueError,
            "max_restarts must be at most 100, got 101",
        ),
        ({"max_restarts": 1.5}, TypeError, "max_restarts must be an int, got float"),
        ({"reorder_window": 0}, ValueError, "reorder_window must be at least 1, got 0"),
        ({"memory_limit": 0}, ValueError, "memory_limit must be at least 1, got 0"),
        ({"memory_limit": "1"}, TypeError, "memory_limit must be an int, got str"),
    ],
)
def test_our_arguments_are_checked(options, error, text):
    with pytest.raises(error, match=text):
        DataLoader(Numbers(), num_workers=1, **options)


@pytest.mark.parametrize("name", OURS[:3])
def test_our_arguments_require_workers(name):
    with pytest.raises(ValueError, match=f"{name} option needs num_workers > 0"):
        DataLoader(Numbers(), **{name: 5})


def test_accelerate_without_install_warns_once(monkeypatch):
    accelerate = types.ModuleType("accelerate.data_loader")
    accelerate.DataLoader = TorchLoader
    monkeypatch.setitem(sys.modules, "accelerate.data_loader", accelerate)
    monkeypatch.setattr(loader_module, "_warned_of_accelerate", False)
    with pytest.warns(UserWarning, match=r"Call gristmill\.torch\.install\(\)"):
        DataLoader(Numbers())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(Numbers())
