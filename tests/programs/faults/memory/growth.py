import gc
import os
import sys

from faults.toolbox import Add, descendants, loader, wait_until


def usage():
    """Return the use of resources after all workers have ended."""
    gc.collect()
    for _ in wait_until("no process but the launcher"):
        if len(descendants(os.getpid())) <= 1:
            break
    with open("/proc/self/smaps_rollup") as file:
        private = sum(
            int(line.split()[1]) for line in file if line.startswith("Private_")
        )
    with open("/proc/self/maps") as file:
        maps = len(file.readlines())
    descriptors = len(os.listdir("/proc/self/fd"))
    return descriptors, len(os.listdir("/proc/self/task")), maps, private


def start():
    iterator = iter(loader([Add()]))
    next(iterator)
    del iterator


for _ in range(10):
    start()
before = usage()
for _ in range(int(sys.argv[1])):
    start()
after = usage()
assert after[:2] == before[:2], (before, after)
assert after[2] <= before[2] + 8, (before, after)
assert after[3] <= before[3] + 4096, (before, after)
