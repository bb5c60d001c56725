import os
import signal

import gristmill as g
from faults.toolbox import Add, digest, expect, loader, undisturbed


class Deadly(g.MapTransform):
    def __setstate__(self, state):
        os.kill(os.getpid(), signal.SIGSEGV)

    def map(self, x):
        return x


deadly = Deadly()
deadly.state = 1
iterator = iter(loader([deadly]))
error = expect(g.errors.WorkerDied, lambda: next(iterator))
assert "ended 3 times before a worker had started" in str(error), error
assert "signal 11" in str(error), error
# The launcher still works.
assert digest(loader([Add()])) == undisturbed([Add()])
