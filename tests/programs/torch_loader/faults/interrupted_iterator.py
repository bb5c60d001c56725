import os
import signal
import threading

from faults.toolbox import expect
from programs.torch_loader.faults.squares import SQUARES, Squares, make, values


class Slow(Squares):
    def __getitem__(self, i):
        if i == 2:
            os.kill(os.getppid(), 0)
            threading.Event().wait(0.5)
        return super().__getitem__(i)


iterator = iter(make(Slow()))
given = [next(iterator) for _ in range(2)]
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(InterruptedError()))
signal.setitimer(signal.ITIMER_REAL, 0.05)
expect(InterruptedError, lambda: next(iterator))
assert values(given + list(iterator)) == SQUARES
