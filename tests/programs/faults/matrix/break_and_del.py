import sys
import threading

from faults.toolbox import (
    Add,
    At,
    await_gone,
    digest,
    engine_processes,
    in_time,
    loader,
    undisturbed,
    watched,
)

busy = sys.argv[1] == "True"


def hang():
    threading.Event().wait()


operations = [At(60, hang)] if busy else []
iterator = iter(loader(operations, records=400))
kept = []
for number, batch in enumerate(iterator):
    kept.append(batch)
    if number == 3:
        break
pids = engine_processes(2)
ending = watched(pids["worker"] + pids["zygote"])
with in_time():
    del iterator
    await_gone(ending)
assert digest(kept) == undisturbed([], records=400)[:4]
kept[0][:] = 7
assert kept[0].tolist() == [7] * 4
# The next iterator uses the same launcher.
assert digest(loader([Add()])) == undisturbed([Add()])
