import os
import signal
import sys

import numpy as np

import gristmill as g
from faults.toolbox import Once, digest, in_time, loader, of_kind

kind, done, size = sys.argv[1:]


class Text:
    # Pickled into the slot after the array before it.
    def __init__(self, x, fault):
        self.x, self.fault = x, fault

    def __reduce__(self):
        if self.x == 42:
            self.fault()
        return str, (str(self),)

    def __str__(self):
        return f"text {self.x} " + "-" * int(size)


class Write(g.MapTransform):
    def __init__(self, fault):
        self.fault = fault

    def map(self, x):
        return {"a": np.full(20_000, x), "b": Text(x, self.fault)}


def listing(outputs):
    return [(digest([o["a"]]), str(o["b"])) for o in outputs]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


operations = of_kind(kind, Write(Once(done, die)))

iterator = iter(loader(operations, batch=0))
with in_time(10):
    found = listing(iterator)
assert os.path.exists(done)
# The fault is used up, so the same pipeline can run in this process.
assert found == listing(loader(operations, batch=0, workers=0))
assert any("text 42 " in text for _, text in found)
