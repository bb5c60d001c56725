"""Tests that a batch that cannot be pickled or unpickled fails alone."""

import itertools
import threading

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from gristmill.torch import DataLoader, StatefulDataLoader
from support.unpicklable import UNPICKLABLE

pytestmark = pytest.mark.multiprocess

TorchLoader = torch.utils.data.DataLoader
SIZE, BAD = 7, 2
LOADERS = {
    "one worker": (DataLoader, {}),
    "two workers": (DataLoader, {"num_workers": 2}),
    "out of order": (DataLoader, {"num_workers": 2, "in_order": False}),
    "persistent": (DataLoader, {"persistent_workers": True}),
    "stateful": (StatefulDataLoader, {}),
    "stateful, out of order": (StatefulDataLoader, {"in_order": False}),
}


class Samples:
    """Sample `BAD` is one of `UNPICKLABLE`; the others are their indices."""

    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        assert get_worker_info() is not None
        return UNPICKLABLE[self.kind]() if index == BAD else index


class Positions:
    """Iterates over the samples of `Samples`; kind "lock" cannot be pickled."""

    def __init__(self, kind):
        self.kind = kind
        self.position = 0

    def __next__(self):
        self.position += 1
        if self.position > SIZE:
            raise StopIteration
        if self.position != BAD + 1:
            return self.position - 1
        return threading.Lock() if self.kind == "lock" else UNPICKLABLE[self.kind]()


class StatefulPositions(Positions):
    def state_dict(self):
        return self.position

    def load_state_dict(self, state):
        self.position = state


class Stream(IterableDataset):
    def __init__(self, iterator_class, kind):
        self.iterator_class = iterator_class
        self.kind = kind

    def __iter__(self):
        return self.iterator_class(self.kind)


def loader_of(loader_class, dataset, **options):
    options = {"num_workers": 1, "multiprocessing_context": "fork", **options}
    return loader_class(dataset, batch_size=None, **options)


def steps(iterator):
    """Yield results of `next`, or error texts, for at most 20 calls."""
    for _ in range(20):
        try:
            yield next(iterator)
        except StopIteration:
            return
        except Exception as error:
            yield f"{type(error).__name__}: {error}"


def torchs_error(kind):
    iterator = iter(loader_of(TorchLoader, Samples(kind)))
    return next(itertools.islice(steps(iterator), BAD, None))


@pytest.mark.parametrize("kind", UNPICKLABLE)
def test_batch_that_cannot_be_unpickled_is_one_error(kind):
    error = torchs_error(kind)
    want = [error if number == BAD else number for number in range(SIZE)]
    for name, (loader_class, options) in LOADERS.items():
        loader = loader_of(loader_class, Samples(kind), **options)
        for _ in range(1 + loader.persistent_workers):
            found = [*steps(iter(loader))]
            if not loader.in_order:
                found.sort(key=want.index)
            assert found == want, name


def test_error_notes_process_of_unpickling():
    iterator = iter(loader_of(DataLoader, Samples("state"), sampler=[BAD]))
    with pytest.raises(KeyError) as caught:
        next(iterator)
    [note] = caught.value.__notes__
    assert note == "while unpickling an output of a worker in the loader's process"


@pytest.mark.filterwarnings("ignore:Neither the dataset nor its iterator")
@pytest.mark.parametrize("kind", ["state", "lock"])
@pytest.mark.parametrize("iterator_class", [Positions, StatefulPositions])
def test_state_after_unpicklable_batch_resumes(kind, iterator_class):
    loader = loader_of(StatefulDataLoader, Stream(iterator_class, kind))
    iterator = steps(iter(loader))
    passed = [next(iterator) for _ in range(BAD + 1)]
    assert passed[-1].startswith("KeyError" if kind == "state" else "TypeError")
    state = loader.state_dict()
    assert [*iterator] == [*range(BAD + 1, SIZE)]
    loader.load_state_dict(state)
    assert [*steps(iter(loader))] == [*range(BAD + 1, SIZE)]
