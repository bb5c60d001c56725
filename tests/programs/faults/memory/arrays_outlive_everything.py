import gc

import numpy as np

from faults.toolbox import loader
from programs.faults.memory.wide import Wide

iterator = iter(loader([Wide()]))
kept = [next(iterator) for _ in range(4)]
view = kept[1][:, 5:9]
iterator.close()
del iterator, kept[1]
gc.collect()
assert (kept[0] == np.array([0, 2, 4, 6])[:, None]).all()
assert view.tolist() == [[x] * 4 for x in (1, 3, 5, 7)]
kept[0] += 1
view[:] = 0
assert (kept[1] == np.array([8, 10, 12, 14])[:, None]).all()
