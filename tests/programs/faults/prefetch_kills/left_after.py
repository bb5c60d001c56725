import os
import sys

import gristmill as g
from faults.toolbox import await_gone, engine_processes

dataset = g.MapDataset.range(10**9).to_iter_dataset().filter(lambda x: True)
iterator = iter(dataset.mp_prefetch(g.MultiprocessingOptions(num_workers=3)))
next(iterator)
found = engine_processes(3)
pidfds = [os.pidfd_open(pid) for pids in found.values() for pid in pids]
if sys.argv[1] == "close":
    iterator.close()
    await_gone(pidfds[2:])
