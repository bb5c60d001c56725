import sys
import threading

from faults.toolbox import await_gone, in_time, wait_until, watched
from programs.torch_loader.faults.squares import SQUARES, Squares, make, values


class Hangs(Squares):
    def __getitem__(self, i):
        if i == 3:
            threading.Event().wait()
        return super().__getitem__(i)


iterator = iter(make(Hangs(), multiprocessing_context=sys.argv[1] or None))
kept = next(iterator)
for _ in wait_until("a worker that waits"):
    ending = watched(worker.pid for worker in iterator._workers)
    if len(ending) == 2:
        break
with in_time():
    del iterator
    await_gone(ending)
assert values([kept]) == SQUARES[:1]
