import os
import sys

import gristmill as g
from faults.toolbox import At, Once, digest, in_time, loader, undisturbed
from programs.faults.stall.stalls import Warnings, stop

once = sys.argv[1]
warned = Warnings("killed")
reference = undisturbed([At(-1, None)])


class AtStart(g.MapTransform):
    def __setstate__(self, state):
        os.register_at_fork(after_in_child=state["fault"])

    def map(self, x):
        return x


at_start = AtStart()
at_start.fault = Once(once, stop)
iterator = iter(
    loader([at_start], workers=1, stall_timeout=0.3, stall_action="restart")
)
with in_time(15):
    assert digest(iterator) == reference
assert os.path.exists(once)
assert "worker 0 has not begun the next one of stream 0" in warned.texts[0], (
    warned.texts
)
