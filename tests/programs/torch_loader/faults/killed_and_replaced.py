import os
import signal
import sys

from faults.toolbox import expect
from programs.torch_loader.faults.squares import SQUARES, make, values

if __name__ == "__main__":
    loader = make(multiprocessing_context=sys.argv[1] or None, max_restarts=3)
    iterator = iter(loader)
    given = []
    for turn in range(64):
        given.append(next(iterator))
        if turn % 20 == 5:
            os.kill(iterator._workers[turn // 20 % 2].pid, signal.SIGKILL)
    assert values(given) == SQUARES
    expect(StopIteration, lambda: next(iterator))
