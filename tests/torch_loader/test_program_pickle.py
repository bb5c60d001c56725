"""Datasets reach the workers with their tensors mapped, or are left to a fork."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from gristmill._engine import packing
from gristmill._torch.batches.pickling import ProgramPickle
from torch_loader.batches import assert_same


class Program:
    """What workers run."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def unpicklable_note(self) -> str:
        return "a note"


class Dataset:
    """A dataset of this module, with all sorts of members."""

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
    """What two workers get, each from the same file, and the bytes of that."""
    fd = packing.pack(ProgramPickle(Program(thing)))
    try:
        programs: list[Any] = [packing.unpack(fd), packing.unpack(fd)]
        return [program.part for program in programs], os.fstat(fd).st_size
    finally:
        os.close(fd)


def test_a_dataset_arrives_as_it_was(table):
    sent = Dataset(table)
    (got, _), _ = carried(sent)
    for name in ("table", "part", "array", "half"):
        assert_same(getattr(got, name), getattr(sent, name))
    for one, other in zip(got.model.parameters(), sent.model.parameters(), strict=True):
        assert_same(one, other)
    assert got.transform(1) == 2


def test_its_memory_is_in_the_file_once(table):
    _, nbytes = carried([table, table[5:], table, Dataset(table)])
    assert table.nbytes < nbytes < table.nbytes + 150_000


def test_what_a_worker_writes_is_its_own(table):
    (one, other), _ = carried(Dataset(table))
    one.table[0, 2] = -1
    assert one.part[0, 0] == -1
    assert other.table[0, 2] == 2


@pytest.fixture
def inherited() -> Iterator[dict[str, Any]]:
    """Things that only a fork of this process can have."""
    near, far = multiprocessing.Pipe()
    end, other_end = socket.socketpair()
    with near, far, end, other_end, multiprocessing.Manager() as manager:
        yield {
            "lock": multiprocessing.Lock(),
            "event": multiprocessing.Event(),
            "queue": multiprocessing.Queue(),
            "value": multiprocessing.Value("i", 0),
            "array": multiprocessing.Array("d", 3),
            "pipe": near,
            "socket": end,
            "list of a manager": manager.list(),
            "shared tensor": torch.ones(3).share_memory_(),
            "module in shared memory": torch.nn.Linear(2, 2).share_memory(),
        }


def test_leaves_to_a_fork_what_copies_would_break(inherited):
    for name, thing in inherited.items():
        with pytest.raises(RuntimeError, match=r"fork|inheritance") as caught:
            carried({"x": [thing]})
        assert caught.value.__notes__ == ["a note"], name


def test_other_errors_stay_what_they_are():
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock'"):
        carried(threading.Lock())
