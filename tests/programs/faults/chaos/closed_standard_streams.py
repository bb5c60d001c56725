import os

for fd in range(3):
    os.close(fd)

import ctypes  # noqa: E402
import sys  # noqa: E402

import gristmill as g  # noqa: E402
from faults.toolbox import digest, loader, undisturbed  # noqa: E402


def complain():
    for fd in range(3):
        ctypes.CDLL(None).dprintf(fd, b"a complaint of some library\n")


class Noisy(g.MapTransform):
    def map(self, x):
        complain()
        return x


iterator = iter(loader([Noisy()]))
found = []
for batch in iterator:
    found.append(batch)
    complain()
    assert not any(os.path.exists(f"/proc/self/fd/{fd}") for fd in range(3))
assert digest(found) == undisturbed([])
open(sys.argv[1], "w").close()
