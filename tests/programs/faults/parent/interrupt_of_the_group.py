import os
import signal

from faults.toolbox import Add, check_rest, digest, expect, loader, undisturbed

reference = undisturbed([Add()], records=4000)
iterator = iter(loader([Add()], records=4000))
seen = []


def drain():
    for batch in iterator:
        seen.append(batch)
        if len(seen) == 5:
            os.killpg(0, signal.SIGINT)


expect(KeyboardInterrupt, drain)
seen.append(next(iterator))
assert digest(seen) == reference[: len(seen)]
fresh = iter(loader([Add()], records=4000))
fresh.set_state(iterator.get_state())
check_rest(fresh, reference, len(seen))
