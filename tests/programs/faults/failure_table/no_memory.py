import sys

import numpy as np

from faults.toolbox import At, expect, loader, of_kind


def ask():
    return np.empty(1 << 60, np.uint8)


operations = of_kind(sys.argv[1], At(42, ask))

iterator = iter(loader(operations))
seen = []


def drain():
    for batch in iterator:
        seen.append(batch)


error = expect(np._core._exceptions._ArrayMemoryError, drain)
assert isinstance(error, MemoryError) and "record 42" in str(error.__notes__)
drain()
assert len(seen) >= 14
