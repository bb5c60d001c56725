import os
import sys

import gristmill as g
from faults.toolbox import At, expect, loader


def note():
    with open(sys.argv[1], "a") as file:
        file.write("x")
    os._exit(1)


for restarts in (0, 3):
    open(sys.argv[1], "w").close()
    dies = loader([At(9, note)], max_restarts=restarts)
    error = expect(g.errors.WorkerDied, lambda dies=dies: list(dies))
    assert f"{restarts + 1} times in a row" in str(error), error
    with open(sys.argv[1]) as file:
        assert file.read() == "x" * (restarts + 1)
