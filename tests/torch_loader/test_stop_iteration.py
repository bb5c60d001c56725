"""Tests of StopIteration, IndexError and exits from user code, compared with torch."""

import pytest
import torch
import torch.utils.data
from torch.utils.data import Dataset, IterableDataset, default_collate

import gristmill.torch
from gristmill.errors import WorkerDied
from gristmill.torch import DataLoader, StatefulDataLoader, WithMask

TorchLoader = torch.utils.data.DataLoader
SIZE = 20
BAD = 9


class Numbers(Dataset):
    """Numbers that raise an error for one number in one function."""

    def __init__(self, place, error):
        self._bad = {place: BAD}
        self._error = error

    def look(self, place, number):
        if self._bad.get(place) == number:
            raise self._error("user code")
        return torch.tensor(number)

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return self.look("__getitem__", index)


class Together(Numbers):
    def __getitems__(self, indices):
        return [self.look("__getitems__", index) for index in indices]


class Stream(IterableDataset, Numbers):
    def __iter__(self):
        return Counter(self, "__next__")


class Counter:
    """Counts up, and passes every number to `look`."""

    def __init__(self, numbers, place):
        self._numbers = numbers
        self._place = place
        self._next = 0

    def __iter__(self):
        return self

    def __next__(self):
        number, self._next = self._next, self._next + 1
        if number == SIZE:
            raise StopIteration
        return int(self._numbers.look(self._place, number))


class Sampler(Numbers):
    def __iter__(self):
        return Counter(self, "sampler")


PLACES = {"__getitems__": Together, "__next__": Stream}


def made(kind, place, error, workers, batch_size):
    dataset = PLACES.get(place, Numbers)(place, error)

    def collate(samples):
        for sample in samples if batch_size else [samples]:
            dataset.look("collate", int(sample))
        return default_collate(samples) if batch_size else samples

    options = {"sampler": Sampler(place, error)} if place == "sampler" else {}
    if place == "collate":
        options["collate_fn"] = collate
    # A fork, because local functions cannot be pickled.
    context = "fork" if workers else None
    return kind(
        dataset,
        batch_size=batch_size,
        num_workers=workers,
        multiprocessing_context=context,
        **options,
    )


def outcomes(loader):
    """Return outputs, or error types in place of failed ones, also after the end."""
    iterator, found = iter(loader), []
    while len(found) < 2 * SIZE and found[-3:] != [StopIteration] * 3:
        try:
            found.append(next(iterator).tolist())
        except Exception as error:
            found.append(type(error))
    return found


IN_WORKERS = ["__getitem__", "__getitems__", "__next__", "collate"]


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("error", [StopIteration, IndexError])
@pytest.mark.parametrize("place", [*IN_WORKERS, "sampler"])
def test_error_of_user_code_matches_torch(place, error, batch_size):
    expected = outcomes(made(TorchLoader, place, error, 0, batch_size))
    assert outcomes(made(DataLoader, place, error, 0, batch_size)) == expected


@pytest.mark.multiprocess
@pytest.mark.parametrize("error", [StopIteration, IndexError])
@pytest.mark.parametrize("place", IN_WORKERS)
def test_error_in_worker_matches_torch(place, error):
    expected = outcomes(made(TorchLoader, place, error, 2, 4))
    assert outcomes(made(DataLoader, place, error, 2, 4)) == expected


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("place", [*IN_WORKERS, "sampler"])
def test_exit_of_user_code_reaches_the_caller(place, error, kind):
    with pytest.raises(error):
        list(made(kind, place, error, 0, 4))


@pytest.mark.multiprocess
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("place", ["__getitem__", "__next__"])
def test_exit_in_worker_raises_worker_died(place, error):
    with pytest.raises(WorkerDied):
        list(made(DataLoader, place, error, 2, 4))


def test_loop_over_masked_dataset_raises_its_index_error():
    masked = WithMask(Numbers("__getitem__", IndexError))
    with pytest.raises(IndexError, match="user code"):
        list(masked)
    assert len(list(WithMask(Numbers(None, None)))) == 2 * SIZE


def test_chain_whose_step_stops_fails_in_a_loader():
    def look(x):
        if x == BAD:
            raise StopIteration
        return x

    chain = gristmill.MapDataset.range(SIZE).map(look)
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(DataLoader(chain, batch_size=4))
