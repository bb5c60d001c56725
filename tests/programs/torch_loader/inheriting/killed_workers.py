import multiprocessing
import os
import signal

import torch

from gristmill.torch import DataLoader

SIZE = 40


class Counts:
    """Sample i is i, the worker and what has forked that."""

    def __init__(self, count, seen):
        self.count = count
        self.seen = seen

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        with self.count.get_lock():
            self.count.value += 1
        self.seen[index] = 1
        return index, os.getpid(), os.getppid()


count = multiprocessing.get_context("spawn").Value("i", 0)
seen = torch.zeros(SIZE).share_memory_()
loader = DataLoader(
    Counts(count, seen),
    batch_size=None,
    num_workers=2,
    prefetch_factor=1,
    max_restarts=3,
    multiprocessing_context="launcher",
)
found = []
for index, worker, zygote in loader:
    found.append(index)
    if index == 5:
        os.kill(worker, signal.SIGKILL)
    elif index == 15:
        os.kill(zygote, signal.SIGKILL)
assert found == [*range(SIZE)]
assert count.value >= SIZE
assert seen.all()
