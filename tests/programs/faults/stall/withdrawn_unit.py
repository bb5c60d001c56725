import os
import sys

from faults.toolbox import At, digest, in_time, loader, undisturbed, wait_until
from programs.faults.stall.stalls import Warnings, loop_for_ever

once = sys.argv[1]
warned = Warnings()
reference = undisturbed([At(-1, None)])


def stay():
    open(once, "w").close()
    loop_for_ever()


iterator = iter(
    loader(
        [At(42, stay)],
        workers=1,
        stall_timeout=1,
        stall_action="restart",
        max_restarts=10,
    )
)
state = iterator.get_state()
seen = [next(iterator) for _ in range(9)]
for _ in wait_until("a worker that stays"):
    if os.path.exists(once):
        break
iterator.set_state(state)
with in_time(15):
    assert digest([next(iterator)]) == reference[:1]
assert len(warned.texts) == 1, warned.texts
