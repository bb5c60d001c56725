import os
import sys
import threading

from programs.torch_loader.faults.squares import SQUARES, Squares, make, values


class Slow(Squares):
    def __getitem__(self, i):
        if i == 2:
            threading.Event().wait(1.5)  # Longer than a worker has to end.
        return super().__getitem__(i)


iterator = iter(make(Slow(), multiprocessing_context=sys.argv[1] or None))
given = [next(iterator) for _ in range(2)]
child = os.fork()
if child == 0:
    del iterator
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert values(given + list(iterator)) == SQUARES
