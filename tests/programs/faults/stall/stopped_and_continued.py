import os
import signal
import sys
import threading

from faults.toolbox import (
    At,
    Once,
    digest,
    engine_processes,
    in_time,
    loader,
    undisturbed,
)
from programs.faults.stall.stalls import Warnings, stop

once = sys.argv[1]
warned = Warnings()
reference = undisturbed([At(-1, None)])
iterator = iter(loader([At(42, Once(once, stop))], stall_timeout=1))


def go_on():
    warned.came.wait()
    for pid in engine_processes(2)["worker"]:
        os.kill(pid, signal.SIGCONT)


threading.Thread(target=go_on).start()
with in_time(15):
    rest = digest(iterator)
assert rest == reference
assert "record 42" in warned.texts[0] and "does not respond" in warned.texts[0], (
    warned.texts
)
