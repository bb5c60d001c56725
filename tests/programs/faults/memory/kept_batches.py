import os
import resource
import sys

import numpy as np

import gristmill as g
from faults.toolbox import loader

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
every = int(sys.argv[1])


class Row(g.MapTransform):
    def map(self, x):
        # Two rows make a leaf too large to be copied out.
        return np.full(9 << 10, x % 251, np.uint8)


count = {1: 5000, 7: 7000}[every]
kept = []
iterator = iter(loader([Row()], records=2 * count, batch=2))
for number, batch in enumerate(iterator):
    assert type(batch.base).__name__ == "SlotView"
    if number % every == 0:
        kept.append((number, batch))
wanted = list(loader([], records=2 * count, batch=2, workers=0))
assert len(kept) == count // every
for number, batch in kept:
    assert (batch == (wanted[number] % 251)[:, None]).all(), number
assert len(os.listdir("/proc/self/fd")) < 40
