import os
import signal
import sys

from faults.toolbox import (
    At,
    await_gone,
    check_rest,
    engine_processes,
    loader,
    of_kind,
    undisturbed,
    watched,
)
from programs.faults.matrix.kinds import options_of

kind, victim = sys.argv[1:]
operations = of_kind(kind, At(-1, None))
options = {**options_of(kind), "records": 2000}
reference = undisturbed(operations, **options)
iterator = iter(loader(operations, **options))
seen = [next(iterator)]
pids = engine_processes(2)
ending = watched(pids["worker"] + pids[victim])
os.kill(pids[victim][0], signal.SIGKILL)
await_gone(ending)
check_rest(iterator, reference, 1)
