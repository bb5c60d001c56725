import gristmill as g
from faults.toolbox import At, expect, loader
from programs.faults.stall.stalls import Warnings, loop_for_ever

warned = Warnings()
operations = [At(42, loop_for_ever)]
iterator = iter(loader(operations, stall_timeout=1, stall_action="restart"))
error = expect(g.errors.WorkerDied, lambda: list(iterator), 15)
assert "was killed by SIGKILL" in str(error) and "record 42" in str(error), error
assert len(warned.texts) == 2, warned.texts
assert all("works on record 42" in text for text in warned.texts), warned.texts
