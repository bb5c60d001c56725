import threading

import gristmill as g
from faults.toolbox import digest, loader, undisturbed
from programs.faults.stall.stalls import Warnings

warned = Warnings("")


class Slow(g.MapTransform):
    def __setstate__(self, state):
        threading.Event().wait(1.5)

    def map(self, x):
        return x


slow = Slow()
slow.state = 1
iterator = iter(loader([slow], stall_timeout=0.5, stall_action="restart"))
assert digest(iterator) == undisturbed([])
words = "No output for 0.5 s: no worker has begun the next output of stream 0"
assert words in warned.texts[0], warned.texts
assert "killed" not in warned.texts[0] and "-1" not in warned.texts[0], warned.texts
