import gristmill as g
from faults.toolbox import expect, loader


class Bad(g.MapTransform):
    def __setstate__(self, state):
        raise ImportError("no such thing here")

    def map(self, x):
        return x


bad = Bad()
bad.some = 1
error = expect(g.errors.WorkerDied, lambda: next(iter(loader([bad]))))
assert "no such thing here" in str(error), error
assert "worker_count=0" in str(error)
