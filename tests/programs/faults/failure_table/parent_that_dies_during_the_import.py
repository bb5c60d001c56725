import os
import signal
import sys

from faults.scripts import start
from faults.toolbox import await_gone, descendants, watched

stopped = sys.argv[1] == "True"
with start("faults/failure_table/endless_import") as script:
    assert script.stdout.readline().startswith("importing")
    pids = descendants(script.pid)
    assert len(pids) == 2
    ending = watched(pids)
    if stopped:
        os.kill(pids[0], signal.SIGSTOP)
    script.kill()
    await_gone(ending)
