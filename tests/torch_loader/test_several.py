"""Tests of loaders with workers: assignment, seeds, lifetime and errors."""

import gc
import os
import pickle
import random
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from faults.scripts import PROGRAMS
from gristmill.torch import DataLoader
from support.waiting import wait_for

pytestmark = pytest.mark.multiprocess

TorchLoader = torch.utils.data.DataLoader


class Who(torch.utils.data.Dataset):
    """Sample i is i, the worker's id and its process id."""

    def __init__(self, size=12):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index, get_worker_info().id, os.getpid()


class Seeds(Who):
    """The seeds and the first random numbers of a worker."""

    def __getitem__(self, index):
        info = get_worker_info()
        numpys = np.random.get_state()[1].tolist()  # noqa: NPY002
        own = random.random(), torch.rand(()).item(), numpys
        return info.id, info.seed, torch.initial_seed(), torch.get_num_threads(), own


class Held(Who):
    """Worker 0 waits until the file exists."""

    def __init__(self, path, size):
        super().__init__(size)
        self.path = path

    def __getitem__(self, index):
        if get_worker_info().id == 0:
            wait_for(lambda: os.path.exists(self.path))
        return index


class Rows(Who):
    """New tensors of the default dtype."""

    def __getitem__(self, index):
        return torch.zeros(2)


class Wrapper(torch.utils.data.Dataset):
    """Delegates attributes to another dataset, which makes unpickling fail."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getattr__(self, name):
        return getattr(self.dataset, name)

    def __getitem__(self, index):
        return self.dataset[index]


class Endless(IterableDataset):
    def __iter__(self):
        number = 0
        while True:
            yield number
            number += 1


def columns(batches):
    """Return each column of all batches as one list."""
    return [torch.cat(parts).tolist() for parts in zip(*batches, strict=True)]


def fork(dataset, **options):
    options = {"num_workers": 2, "multiprocessing_context": "fork", **options}
    return DataLoader(dataset, **options)


@pytest.mark.parametrize("context", ["launcher", "fork", "spawn", "forkserver"])
def test_batch_k_comes_from_worker_k_mod_n(context):
    loader = fork(Who(), batch_size=3, multiprocessing_context=context)
    numbers, workers, pids = columns(loader)
    assert numbers == list(range(12))
    assert workers == [0] * 3 + [1] * 3 + [0] * 3 + [1] * 3
    assert len(set(pids)) == 2 and os.getpid() not in pids


def test_seeds_of_workers_match_torch():
    found = []
    for kind in (DataLoader, TorchLoader):
        torch.manual_seed(5)
        loader = kind(Seeds(4), None, num_workers=2, multiprocessing_context="fork")
        found.append(list(loader))
    assert found[0] == found[1]


def test_persistent_workers_serve_one_iterator():
    loader = fork(Who(), batch_size=3, persistent_workers=True)
    first = iter(loader)
    numbers, _, pids = columns(first)
    next(iter(loader))
    assert iter(loader) is first
    again, workers, same = columns(first)
    assert again == numbers == list(range(12))
    assert workers[:6] == [0, 0, 0, 1, 1, 1]
    assert same == pids
    first._shutdown_workers()


def test_each_iterator_has_its_own_workers():
    loader = fork(Who(), batch_size=3)
    one, two = iter(loader), iter(loader)
    pids = [set(next(batches)[2].tolist()) for batches in (one, two, one, two)]
    assert len(set.union(*pids)) == 4
    for batches in (one, two):
        assert [batch[0].tolist() for batch in batches] == [[6, 7, 8], [9, 10, 11]]


def test_shutdown_workers_ends_workers():
    batches = iter(fork(Who(), batch_size=3))
    assert isinstance(batches, _MultiProcessingDataLoaderIter)
    next(batches)
    workers = batches._workers
    assert [w.is_alive() for w in workers] == [True, True]
    assert len({w.pid for w in workers}) == 2
    batches._shutdown_workers()
    for worker in workers:
        worker.join()
    assert [(w.is_alive(), w.exitcode) for w in workers] == [(False, 0)] * 2
    batches._shutdown_workers()
    with pytest.raises(AssertionError, match="Invalid iterator state: shutdown"):
        next(batches)


@pytest.mark.parametrize("how", ["drop", "finish"])
def test_workers_end_with_their_iterator(how):
    batches = iter(fork(Who(), batch_size=3))
    pids = [worker.pid for worker in batches._workers]
    for _ in batches:
        if how == "drop":
            break
    if how == "drop":
        del batches
        gc.collect()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_slow_worker_out_of_order_does_not_block_others(tmp_path):
    path = tmp_path / "go"
    batches = iter(fork(Held(str(path), 12), batch_size=1, in_order=False))
    first = [next(batches).item() for _ in range(10)]
    path.touch()
    rest = [batch.item() for batch in batches]
    assert sorted(first + rest) == list(range(12))
    assert rest[0] == 0 or set(rest) == {0, 2}


def test_reorder_window_lets_other_workers_continue(tmp_path):
    class Marked(Held):
        def __getitem__(self, index):
            if get_worker_info().id == 1 and index == 15:
                open(self.path, "w").close()
            return super().__getitem__(index)

    # Worker 1 reaches its 8th sample while worker 0 waits in its first.
    dataset = Marked(str(tmp_path / "go"), 16)
    loader = fork(dataset, batch_size=1, reorder_window=16)
    assert [batch.item() for batch in loader] == list(range(16))


def test_out_of_order_with_window_loses_no_key():
    loader = fork(Who(40), batch_size=1, in_order=False, reorder_window=7)
    assert sorted(columns(loader)[0]) == list(range(40))


def test_very_large_batches_arrive():
    batches = list(DataLoader(range(150_000), 70_000, num_workers=2))
    assert torch.cat(batches).tolist() == list(range(150_000))


def test_very_long_keys_arrive():
    keys = ["a" * 600_000, "b"]
    loader = fork(dict(zip(keys, "xy", strict=True)), sampler=keys, batch_size=None)
    before = len(os.listdir("/proc/self/fd"))
    assert list(loader) == ["x", "y"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_new_tensors_have_default_dtype_of_program():
    torch.set_default_dtype(torch.float64)
    try:
        loader = DataLoader(Rows(), batch_size=None, num_workers=1)
        assert {row.dtype for row in loader} == {torch.float64}
    finally:
        torch.set_default_dtype(torch.float32)


def test_classes_of_main_module_keep_their_identity():
    script = PROGRAMS / "torch_loader" / "several" / "classes_of_the_main_module.py"
    subprocess.run([sys.executable, script], check=True, timeout=60)


def test_requested_batches_do_not_exceed_torch():
    drawn = []

    class Counted(torch.utils.data.Sampler):
        def __iter__(self):
            for number in range(100):
                drawn.append(number)
                yield number

    batches = iter(fork(Who(100), sampler=Counted(), prefetch_factor=3, batch_size=1))
    counts = [len(drawn)]
    for _ in range(3):
        next(batches)
        counts.append(len(drawn))
    assert counts == [6, 7, 8, 9]


def test_late_batch_raises_timeout_error(tmp_path):
    batches = iter(fork(Held(str(tmp_path / "go"), 12), timeout=0.2))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.2 seconds"):
        next(batches)
    batches._shutdown_workers()


def test_failing_worker_init_fn_raises_its_error():
    def refuse(worker):
        raise ValueError(f"worker {worker} refuses")

    batches = iter(fork(Who(), worker_init_fn=refuse))
    with pytest.raises(ValueError, match="Caught ValueError in DataLoader worker pro"):
        next(batches)


def test_batches_can_be_kept_and_changed():
    with_rows = torch.utils.data.TensorDataset(torch.arange(400_000).reshape(40, -1))
    kept = []
    for [batch] in fork(with_rows, batch_size=4):
        assert not batch.is_shared()
        batch += 1
        kept.append(batch)
    del batch
    gc.collect()
    assert torch.equal(torch.cat(kept).flatten(), torch.arange(400_000) + 1)


def test_unpicklable_dataset_is_forked():
    lock = threading.Lock()

    class Locked(Who):
        def __getitem__(self, index):
            with lock:
                return index

    numbers = [batch.item() for batch in DataLoader(Locked(4), num_workers=2)]
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize("in_order", [True, False])
def test_dataset_that_fails_to_unpickle_is_forked(in_order):
    loader = DataLoader(Wrapper(Who(7)), num_workers=2, in_order=in_order)
    for _ in range(2):
        assert sorted(columns(loader)[0]) == list(range(7))


def test_unpicklable_collate_fn_cannot_be_spawned():
    with (
        pytest.raises((TypeError, AttributeError, pickle.PicklingError)),
        pytest.warns(UserWarning, match="Got pickle error when attempting to start"),
    ):
        iter(
            fork(Who(), collate_fn=lambda batch: batch, multiprocessing_context="spawn")
        )


def test_endless_dataset_can_be_abandoned():
    batches = iter(fork(Endless(), batch_size=2, persistent_workers=True))
    found = [next(batches).tolist() for _ in range(5)]
    assert found == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5]]
    batches._shutdown_workers()


def test_profiles_show_the_loader():
    with torch.profiler.profile() as profile:
        list(fork(Who(4)))
    names = {event.key for event in profile.key_averages()}
    assert "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__" in names


def test_forked_processes_cannot_use_an_iterator():
    batches = iter(fork(Who()))
    next(batches)
    pid = os.fork()
    if pid == 0:
        try:
            next(batches)
        except RuntimeError:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert len(list(batches)) == 11


def test_batches_made_in_slot_stay_there(monkeypatch):
    def move(storage):
        raise AssertionError("moved a batch out of its slot")

    monkeypatch.setattr(torch.UntypedStorage, "share_memory_", move)
    batches = fork(list(range(96)), batch_size=32)
    assert torch.cat(list(batches)).tolist() == list(range(96))
