import multiprocessing
import os
import select
import signal

import torch

from gristmill.torch import DataLoader

SIZE = 40


class Counts:
    """Sample i is (i, process id of the worker, process id of its parent)."""

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


def kill(process, workers):
    """Kill a process and wait until the workers have ended.

    Holding the lock keeps workers from dying while they have it.
    """
    with count.get_lock():
        ends = [os.pidfd_open(worker) for worker in workers]
        os.kill(process, signal.SIGKILL)
        for end in ends:
            select.select([end], [], [])
            os.close(end)


found = []
batches = iter(loader)
for index, worker, zygote in batches:
    found.append(index)
    if index == 5:
        kill(worker, [worker])
    elif index == 15:
        kill(zygote, [process.pid for process in batches._workers])
assert found == [*range(SIZE)]
assert count.value >= SIZE
assert seen.all()
