import os
import threading

import gristmill as g
from faults.toolbox import loader


class Slow(g.MapTransform):
    def __setstate__(self, state):
        print("importing", os.getpid(), flush=True)
        threading.Event().wait()

    def map(self, x):
        return x


slow = Slow()
slow.state = 1
next(iter(loader([slow])))
