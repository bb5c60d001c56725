import os
import re
import sys
import threading

from faults.toolbox import At, digest, in_time, loader, of_kind, undisturbed, wait_until
from programs.faults.stall.stalls import Warnings

kind, once = sys.argv[1:]
warned = Warnings()
reference = undisturbed(of_kind(kind, At(-1, None)))


def wait_for_it():
    for _ in wait_until("the warning"):
        if os.path.exists(once):
            return


operations = of_kind(kind, At(42, wait_for_it))
iterator = iter(loader(operations, stall_timeout=1))


def go_on():
    warned.came.wait()
    open(once, "w").close()


threading.Thread(target=go_on).start()
with in_time(15):
    rest = digest(iterator)
assert rest == reference
assert len(warned.texts) == 1, warned.texts
text = warned.texts[0]
assert re.search("worker [01] works on record 42 of stream 0", text), text
assert "in wait_for_it" in text and 'toolbox.py", line' in text, text
assert 'stall_action="restart"' in text
