import sys
import threading

import jax.numpy
import numpy as np

from faults.toolbox import Add, digest, loader, undisturbed

jax.numpy.ones(9).sum().block_until_ready()
stop = threading.Event()
random = np.random.default_rng(0)


def be_busy():
    while not stop.is_set():
        # Half the time in Python, half in the allocator without the GIL.
        sum(range(1000))
        np.sort(random.random(20_000))


threads = [threading.Thread(target=be_busy) for _ in range(8)]
for thread in threads:
    thread.start()
try:
    reference = undisturbed([Add()])
    for number in range(int(sys.argv[1])):
        iterator = iter(loader([Add()]))
        assert digest([next(iterator)]) == reference[:1], number
        if number % 3 == 0:
            assert digest(iterator) == reference[1:]
finally:
    stop.set()
