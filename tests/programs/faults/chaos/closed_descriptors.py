import os

from faults.toolbox import (
    Add,
    await_gone,
    digest,
    engine_processes,
    in_time,
    loader,
    undisturbed,
    watched,
)

iterator = iter(loader([Add()], records=100_000))
next(iterator)
ending = [os.dup2(fd, 300 + fd) for fd in watched(engine_processes(2)["worker"])]
os.closerange(3, 256)
with in_time():
    iterator.close()
    await_gone(ending)
assert digest(loader([Add()])) == undisturbed([Add()])
