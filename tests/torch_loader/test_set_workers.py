"""Tests that set_workers() on a running loader does not change its batches."""

import contextlib

import psutil
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from gristmill.torch import DataLoader, StatefulDataLoader

BATCHES = 120


class Squares(Dataset):
    def __len__(self):
        return 4 * BATCHES

    def __getitem__(self, index):
        return torch.tensor([index, index * index])


class Whose(Squares):
    def __getitem__(self, index):
        return get_worker_info().num_workers


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield 1


class Counting(Squares):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def make(kind=DataLoader, dataset=None, **options):
    generator = torch.Generator().manual_seed(3)
    options = {"num_workers": 1, "generator": generator, **options}
    return kind(dataset or Squares(), batch_size=4, shuffle=True, **options)


def change(iterator, count):
    """Let `count` workers take over before the next batch."""
    iterator.set_workers(count)
    pool = iterator._pool
    while pool.successor and not pool._receive_first_answers(pool.successor):
        pass


def kill(iterator, number):
    process = iterator._workers[number % len(iterator._workers)]
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(process.pid).kill()


@pytest.mark.parametrize("context", [None, "fork"])
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_batches_and_states_do_not_change_under_kills(kind, context):
    options = {"max_restarts": 9, "multiprocessing_context": context}
    found_loader, loader = make(kind, **options), make(kind)
    torch.manual_seed(1)  # States contain the seed of the workers.
    expected = iter(loader)
    torch.manual_seed(1)
    found = iter(found_loader)
    for number, batch in enumerate(expected):
        if number in (20, 70):
            change(found, 4 if number == 20 else 2)
        if number % 15 == 12:
            kill(found, number)
        torch.testing.assert_close(next(found), batch, rtol=0, atol=0)
        assert len(found._workers) == (4 if 20 <= number < 70 else 1 + (number >= 70))
        if kind is StatefulDataLoader and number % 15 == 7:
            assert str(found_loader.state_dict()) == str(loader.state_dict())
    assert next(found, None) is None
    assert number == BATCHES - 1


def test_worker_info_has_current_number_of_workers():
    iterator = iter(make(dataset=Whose()))
    next(iterator)
    change(iterator, 3)
    told = [batch[0].item() for batch in iterator]
    # Batches requested from the first worker are not computed again.
    assert told == [1] * told.count(1) + [3] * (BATCHES - 1 - told.count(1))
    assert 1 <= told.count(1) <= 2


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_number_of_persistent_workers_is_kept(kind):
    expected = make(kind, persistent_workers=True)
    found = make(kind, persistent_workers=True, worker_init_fn=id)
    change(iter(found), 3)
    next(found._iterator)
    iter(expected)
    for _ in range(2):
        batches = [batch.tolist() for batch in expected]
        assert [batch.tolist() for batch in found] == batches
        assert len(found._iterator._workers) == 3


def test_overlapping_epochs_continue_after_change():
    options = {"persistent_workers": True, "overlap_epochs": True, "num_workers": 2}
    expected, found = make(**options), make(**options)
    for count in (4, 1, 4):
        batches = [batch.tolist() for batch in expected]
        for number, batch in enumerate(found):
            assert batch.tolist() == batches[number]
            if number == BATCHES - 3:
                change(found._iterator, count)


def test_old_and_new_workers_end():
    iterator = iter(make(num_workers=2))
    next(iterator)
    before = [psutil.Process(process.pid) for process in iterator._workers]
    change(iterator, 1)
    for _ in range(8):
        next(iterator)
    assert psutil.wait_procs(before, timeout=20)[1] == []
    after = [psutil.Process(process.pid) for process in iterator._workers]
    iterator.set_workers(2)
    coming = [process.pid for process in iterator._pool.successor.processes]
    after += [psutil.Process(pid) for pid in coming if psutil.pid_exists(pid)]
    del iterator
    assert psutil.wait_procs(after, timeout=20)[1] == []


def refuse(worker):
    if get_worker_info().num_workers == 2:
        raise ValueError("not two")


def test_failed_start_raises_and_old_workers_continue():
    iterator = iter(make(worker_init_fn=refuse))
    next(iterator)
    with pytest.raises(ValueError, match="not two"):
        change(iterator, 2)
    assert len([*iterator]) == BATCHES - 1


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)]
)
def test_invalid_count_is_refused(count, error):
    with pytest.raises(error, match=r"count|worker"):
        iter(make(num_workers=0)).set_workers(count)


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (lambda: DataLoader(Endless(), num_workers=1), "IterableDataset"),
        (lambda: make(in_order=False), "in_order=False"),
        (lambda: make(StatefulDataLoader, Counting()), "own state"),
        (lambda: make(num_workers=0), "num_workers=0"),
    ],
)
def test_change_is_refused_if_output_depends_on_workers(loader, reason):
    with pytest.raises(ValueError, match=reason):
        iter(loader()).set_workers(2)


def test_change_after_workers_ended_is_refused():
    iterator = iter(make())
    assert len([*iterator]) == BATCHES
    with pytest.raises(RuntimeError, match="have ended"):
        iterator.set_workers(2)
