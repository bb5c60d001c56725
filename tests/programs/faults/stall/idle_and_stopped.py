import os
import signal
import sys

from faults.toolbox import (
    At,
    digest,
    engine_processes,
    in_time,
    loader,
    of_kind,
    undisturbed,
)
from programs.faults.stall.stalls import Warnings

kind = sys.argv[1]
warned = Warnings("will be killed")
clean = of_kind(kind, At(-1, None))
reference = undisturbed(clean)
iterator = iter(loader(clean, stall_timeout=0.5, stall_action="restart"))
seen = [next(iterator)]
stopped = engine_processes(2)["worker"]
for pid in stopped:
    os.kill(pid, signal.SIGSTOP)
with in_time(15):
    seen += iterator
assert digest(seen) == reference
assert warned.texts
assert set(stopped) != set(engine_processes(2)["worker"])
