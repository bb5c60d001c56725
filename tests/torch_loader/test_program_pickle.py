"""Tests that datasets are sent to workers with tensors mapped or shared."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from typing import Any

import numpy as np
import pytest
import torch

from gristmill._engine import packing
from gristmill._torch.batches.program_pickling import ProgramPickle
from gristmill._workers import inheriting
from torch_loader.batches import assert_same


class Program:
    """A program that workers run."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def unpicklable_note(self) -> str:
        return "a note"


class Dataset:
    """A dataset with many kinds of members."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self.part = table[:, 2:]
        self.array = np.arange(10_000)
        self.half = torch.ones(5000, dtype=torch.bfloat16)
        self.model = torch.nn.Linear(3, 4)
        self.transform = lambda x: x + self.table[0, 1]


@pytest.fixture
def table() -> torch.Tensor:
    return torch.arange(100_000).reshape(100, 1000)


def carried(thing: Any) -> Any:
    """Return what two workers load from one file, and the size of the file."""
    program = ProgramPickle(Program(thing))
    fd = packing.pack(program)

    def load() -> Any:
        inheriting.received_fds[:] = map(os.dup, program.inherited)
        loaded: Any = packing.unpack(fd)
        return loaded.part

    try:
        return [load(), load()], os.fstat(fd).st_size
    finally:
        os.close(fd)


def test_dataset_arrives_unchanged(table):
    sent = Dataset(table)
    (got, _), _ = carried(sent)
    for name in ("table", "part", "array", "half"):
        assert_same(getattr(got, name), getattr(sent, name))
    for one, other in zip(got.model.parameters(), sent.model.parameters(), strict=True):
        assert_same(one, other)
    assert got.transform(1) == 2


def test_shared_memory_of_dataset_is_stored_once(table):
    _, nbytes = carried([table, table[5:], table, Dataset(table)])
    assert table.nbytes < nbytes < table.nbytes + 150_000


def test_writes_of_a_worker_are_private(table):
    (one, other), _ = carried(Dataset(table))
    one.table[0, 2] = -1
    assert one.part[0, 0] == -1
    assert other.table[0, 2] == 2


def test_tensors_of_one_storage_share_one_in_worker():
    table = torch.arange(24.0)
    windows = np.arange(24.0)
    sent = [table[4:], table[:9], table[6:].view(torch.int64)]
    apart = [torch.from_numpy(windows[:9]), torch.from_numpy(windows[4:])]
    (got, _), _ = carried([sent, apart])
    assert_same(got, [sent, apart])
    storages = [{part.untyped_storage()._cdata for part in parts} for parts in got]
    assert [*map(len, storages)] == [1, 2]


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:TypedStorage")
def test_sparse_tensor_arrives_unchanged():
    (got, _), _ = carried(torch.eye(3).to_sparse())
    assert_same(got, torch.eye(3).to_sparse())


def test_shared_tensors_are_shared_with_workers():
    table = torch.zeros(4, 3).share_memory_()
    module = torch.nn.Linear(2, 2).share_memory()
    sent = [table, table[1:], table.untyped_storage(), module]
    (one, other), _ = carried(sent)
    for got in (one, other):
        assert got[0].is_shared()
        assert next(got[3].parameters()).is_shared()
    table[2, 0] = 5
    assert one[1][1, 0] == other[0][2, 0] == 5
    one[1][0, 0] = 6
    assert table[1, 0] == other[0][1, 0] == 6


def test_fork_context_locks_are_refused_like_spawn():
    for name in ("Lock", "Event", "Queue", "Condition", "Semaphore"):
        thing = getattr(multiprocessing.get_context("fork"), name)()
        with pytest.raises(RuntimeError, match="created in a fork context") as caught:
            carried({"x": [thing]})
        assert caught.value.__notes__ == ["a note"], name


def test_locks_are_refused_when_no_child_starts():
    carried(torch.ones(3).share_memory_())
    with pytest.raises(RuntimeError, match=r"only be shared .* through inheritance"):
        pickle.dumps(multiprocessing.get_context("spawn").Lock())


def test_other_pickle_errors_are_unchanged():
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock'"):
        carried(threading.Lock())
