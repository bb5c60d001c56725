import os
import signal
import sys

import gristmill as g
from faults.toolbox import expect, loader
from programs.faults.failure_table.at_start import AtStart

starts, death, words = sys.argv[1:]


def die():
    with open(starts, "a") as file:
        file.write("x")
    if death == "exit":
        os._exit(9)
    os.kill(os.getpid(), signal.SIGKILL)


iterator = iter(loader([AtStart(die)], workers=1))
error = expect(g.errors.WorkerDied, lambda: next(iterator))
assert "Worker processes cannot start" in str(error) and words in str(error)
assert "worker_count=0" in str(error)
with open(starts) as file:
    assert file.read() == "xxx"
again = expect(g.errors.WorkerDied, lambda: next(iterator))
assert str(again) == str(error)
