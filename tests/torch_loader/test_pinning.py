"""Tests of the thread that pins batches, with a replacement that records calls."""

import multiprocessing
import threading

import pytest
import torch
import torch.utils.data

from gristmill._torch.workers import pinning
from gristmill.errors import ArenaFull, WorkerDied
from gristmill.torch import DataLoader

pytestmark = pytest.mark.multiprocess


@pytest.fixture(autouse=True)
def pinned(monkeypatch):
    """Return the name of the pinning thread for each pinned batch."""
    noted = []

    def note(batch, device):
        assert device in ("cuda", None)  # torch 2.6 passes None.
        if torch.is_tensor(batch) and batch.flatten()[0] == 3:
            raise ValueError("cannot be pinned")
        noted.append(threading.current_thread().name)
        return batch

    monkeypatch.setattr(pinning, "pin_memory", note)
    accelerator = torch.device("cuda", 0)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # torch 2.6 calls it.
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *_: accelerator
    )
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    return noted


class Numbers(torch.utils.data.Dataset):
    def __init__(self, numbers, size=1, dies_at=None, may_die=None):
        self.numbers = list(numbers)
        self.size = size
        self.dies_at = dies_at
        self.may_die = may_die

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        if index == self.dies_at:
            self.may_die.wait()
            raise SystemExit
        return torch.full((self.size,), self.numbers[index], dtype=torch.uint8)


def make(dataset, **options):
    return DataLoader(
        dataset,
        None,
        num_workers=2,
        pin_memory=True,
        multiprocessing_context="fork",
        **options,
    )


def values(batches):
    return [int(batch[0]) for batch in batches]


def test_all_batches_are_pinned_by_thread(pinned):
    loader = make(Numbers(range(10, 30)))
    assert values(loader) == list(range(10, 30))
    assert pinned == ["pt_data_pin"] * 20


@pytest.mark.parametrize("overlap", [False, True])
def test_epochs_restart_after_break(pinned, overlap):
    loader = make(
        Numbers(range(10, 18)), persistent_workers=True, overlap_epochs=overlap
    )
    for stop in (8, 3, 0, 8, 1, 8, 8):
        batches = iter(loader)
        assert [int(next(batches)[0]) for _ in range(stop)] == [*range(10, 18)][:stop]
        assert stop < 8 or next(batches, None) is None
    loader._iterator._shutdown_workers()


def test_batch_that_cannot_be_pinned_fails_alone():
    batches = iter(make(Numbers([1, 2, 3, 4])))
    assert values([next(batches), next(batches)]) == [1, 2]
    with pytest.raises(ValueError, match="Caught ValueError in pin memory thread for"):
        next(batches)
    assert values(batches) == [4]


def test_dead_worker_raises_each_time():
    may_die = multiprocessing.get_context("fork").Event()
    batches = iter(make(Numbers([5, 6, 7, 8], dies_at=2, may_die=may_die)))
    assert values([next(batches), next(batches)]) == [5, 6]
    may_die.set()
    for _ in range(6):
        with pytest.raises(WorkerDied, match="exited unexpectedly"):
            next(batches)


def test_arena_full_ends_when_kept_batches_are_freed():
    numbers = list(range(10, 42))
    batches = iter(make(Numbers(numbers, size=1 << 20), memory_limit=12 << 20))
    kept, seen = [], []
    fulls = 0
    while len(seen) < len(numbers):
        try:
            kept.append(next(batches))
        except ArenaFull:
            fulls += 1
            kept.clear()
            continue
        seen.append(int(kept[-1][0]))
    assert seen == numbers
    assert fulls >= 2
    assert next(batches, None) is None


def test_pinning_thread_may_collect_the_iterator(monkeypatch):
    batches = iter(make(Numbers(range(10, 20))))
    ended = threading.Event()

    def collected(value, device):
        batches._shutdown_workers()
        ended.set()
        return value

    monkeypatch.setattr(pinning, "pin_memory", collected)
    next(batches)
    assert ended.wait(30)
    batches._pin_thread._thread.join(30)
    assert not batches._pin_thread._thread.is_alive()


def test_batches_are_pinned_in_order_after_set_workers(pinned):
    batches = iter(make(Numbers(range(10, 90))))
    given = [next(batches).item()]
    for count in (1, 4):
        batches.set_workers(count)
        pool = batches._pool
        while not pool._receive_first_answers(pool.successor):
            pass
        given += [next(batches).item() for _ in range(12)]
        assert len(batches._workers) == count
    given += [batch.item() for batch in batches]
    assert given == [*range(10, 90)]
    assert pinned == ["pt_data_pin"] * 80


def test_close_does_not_wait_for_pinning(monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow(value, device):
        begun.set()
        go_on.wait(30)
        return value

    monkeypatch.setattr(pinning, "pin_memory", slow)
    batches = iter(make(Numbers(range(10, 20))))
    assert begun.wait(30)
    thread = batches._pin_thread._thread
    del batches
    assert thread.is_alive()
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()
