import os
import sys

import gristmill as g
from faults.toolbox import Add, in_time, loader


def no_fork():
    os.environ["PYTHONPATH"] = sys.argv[2] + ":" + os.environ["PYTHONPATH"]


def spoil(what):
    if what == "no name of the interpreter":
        sys.executable = ""
    elif what == "no interpreter":
        sys.executable = None
    elif what == "another interpreter":
        sys.executable = "/no/such"
    elif what == "too long an environment":
        os.environ.update({f"L{i}": "x" * 999 for i in range(9999)})
    else:
        no_fork()


spoil(sys.argv[1])
iterator = iter(loader([Add()]))
try:
    with in_time():
        next(iterator)
except (g.errors.WorkerDied, RuntimeError) as caught:
    error = caught
    assert sys.argv[3] in str(error), error
else:
    raise AssertionError
assert "worker_count=0" in str(error) or "use no workers" in str(error)
