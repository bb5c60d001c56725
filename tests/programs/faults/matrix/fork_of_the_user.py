import os
import sys

import numpy as np

import gristmill as g
from faults.toolbox import Add, At, digest, expect, loader, of_kind, undisturbed


# Its leaves are too large to be copied out of their slots.
class Wide(g.MapTransform):
    def map(self, x):
        return np.full(20_000, x)


operations = of_kind(sys.argv[1], At(-1, None), Wide())

reference = undisturbed(operations)
iterator = iter(loader(operations))
kept = [next(iterator) for _ in range(3)]
copies = digest(kept)
child = os.fork()
if child == 0:
    status = 1
    try:
        error = expect(RuntimeError, lambda: next(iterator))
        assert "fork" in str(error)
        assert digest(kept) == copies
        for array in kept:
            array[:] = 9
        kept.clear()
        iterator.get_state()
        iterator.close()
        del iterator
        # It can start its own workers.
        assert digest(loader([Add()])) == undisturbed([Add()])
        status = 0
    finally:
        import traceback

        if status:
            traceback.print_exc()
        os._exit(status)
rest = []
for element in iterator:
    rest.append(element)
    kept.append(element)
assert os.waitpid(child, 0)[1] == 0
assert digest(rest) == reference[3:]
assert digest(kept[3:]) == reference[3:]
