import re
import sys

from faults.toolbox import At, Once, digest, in_time, loader, of_kind, undisturbed
from programs.faults.stall.stalls import Warnings, loop_for_ever, stop

kind, stall, once = sys.argv[1:]
warned = Warnings()
reference = undisturbed(of_kind(kind, At(-1, None)))
fault = Once(once, stop if stall == "stopped" else loop_for_ever)
operations = of_kind(kind, At(42, fault))
iterator = iter(loader(operations, stall_timeout=1, stall_action="restart"))
with in_time(15):
    rest = digest(iterator)
assert rest == reference
assert len(warned.texts) == 1, warned.texts
assert re.match(
    r"No output for 1 s: worker [01] works on record 42 of stream 0[.]\n",
    warned.texts[0],
), warned.texts
assert "will be killed and replaced" in warned.texts[0]
