import sys
import threading

import gristmill as g
from faults.toolbox import expect, loader

batch = int(sys.argv[1])


class Lock(g.MapTransform):
    def map(self, x):
        return {"x": x, "lock": threading.Lock()} if x == 46 else {"x": x}


def last(xs):
    return xs[-1]


lock = [Lock(), g.Batch(batch, batch_fn=last)] if batch else [Lock()]
iterator = iter(loader(lock, batch=0))
seen = []


def drain():
    for element in iterator:
        seen.append(int(element["x"]))


error = expect(TypeError, drain)
assert "cannot pickle '_thread.lock' object" in str(error), error
assert any("while sending an output" in n for n in error.__notes__)
drain()
if batch:
    reference = [int(x[-1]) for x in loader([], batch=batch, workers=0)]
else:
    reference = [int(x) for x in loader([], batch=0, workers=0)]
assert seen == [x for x in reference if x != 46], seen
