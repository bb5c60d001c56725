import os
import signal
import sys

import gristmill as g
from faults.toolbox import expect
from programs.torch_loader.faults.squares import make, values

if __name__ == "__main__":
    iterator = iter(make(multiprocessing_context=sys.argv[1] or None))
    next(iterator)
    pid = iterator._workers[1].pid
    os.kill(pid, signal.SIGKILL)
    error = expect(g.errors.WorkerDied, lambda: values(iterator))
    assert isinstance(error, RuntimeError)
    assert str(error) == f"DataLoader worker (pid(s) {pid}) exited unexpectedly"
    assert str(error.__cause__) == (
        f"DataLoader worker (pid {pid}) is killed by signal: Killed. "
    )
