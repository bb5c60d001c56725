import os
import signal
import sys

from faults.toolbox import (
    Add,
    await_asleep,
    await_gone,
    check_rest,
    digest,
    engine_processes,
    loader,
    of_kind,
    undisturbed,
    watched,
)

operations = of_kind(sys.argv[1], Add())

reference = undisturbed(operations)
iterator = iter(loader(operations))
seen = [next(iterator)]
for victims in (1, 2):
    pids = engine_processes(2)["worker"]
    for pid in pids:
        await_asleep(pid)
    ending = watched(pids[:victims])
    for pid in pids[:victims]:
        os.kill(pid, signal.SIGKILL)
    await_gone(ending)
    seen += [next(iterator) for _ in range(6)]
check_rest(iterator, reference, len(seen))
assert digest(seen) == reference[: len(seen)]
