import multiprocessing

from faults.toolbox import await_asleep, wait_until
from programs.torch_loader.faults.squares import Squares, make

counter = multiprocessing.get_context("fork").Value("i", 0)


class Counts(Squares):
    def __getitem__(self, i):
        with counter.get_lock():
            counter.value += 1
        return super().__getitem__(i)


iterator = iter(make(Counts(), prefetch_factor=3))
given = [next(iterator)]
for _ in wait_until("what may be computed ahead"):
    if counter.value == 7:
        break
await_asleep(iterator._workers[0].pid)
await_asleep(iterator._workers[1].pid)
assert counter.value == 7
