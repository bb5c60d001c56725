"""Prints the memory growth of all processes from 1 to 3 workers, in bytes."""

import os
import pathlib

import numpy as np

from faults.toolbox import descendants
from unit.engine.test_snapshot import Map, loader

ROWS, WIDTH = 200, 1 << 20
table = np.ones((ROWS, WIDTH), np.uint8)


def total(number):
    return int(table[number].sum(dtype=np.int64))


def pss(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(text.split("Pss:")[1].split()[0])


def memory(workers):
    iterator = iter(loader(range(ROWS), [Map(total)], workers=workers))
    found = [next(iterator) for _ in range(ROWS - 1)]
    assert found == [WIDTH] * (ROWS - 1)
    used = sum(pss(pid) for pid in [os.getpid(), *descendants(os.getpid())])
    iterator.close()
    return used


print(memory(1), memory(3))
