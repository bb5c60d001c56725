import os
import signal
import sys
import threading

from faults.toolbox import (
    At,
    Once,
    await_parked,
    check_rest,
    expect,
    loader,
    of_kind,
    undisturbed,
    wait_until,
)
from programs.faults.matrix.kinds import options_of

kind, path = sys.argv[1:]
options = options_of(kind)
reference = undisturbed(of_kind(kind, At(-1, None)), **options)


def wait_for_it():
    for _ in wait_until("the go"):
        if os.path.exists(path + "-go"):
            return


operations = of_kind(kind, At(42, Once(path, wait_for_it)))

iterator = iter(loader(operations, **options))
seen = []


def drain():
    for element in iterator:
        seen.append(element)


place = {"single": 42, "filtered": 6, "batches": 10}[kind]


def interrupt():
    for _ in wait_until("a worker that hangs"):
        if os.path.exists(path) and len(seen) == place:
            break
    await_parked(threading.main_thread().native_id)
    os.kill(os.getpid(), signal.SIGINT)


threading.Thread(target=interrupt).start()
expect(KeyboardInterrupt, drain, deadline_s=10)
assert len(seen) == place, len(seen)
state = iterator.get_state()
open(path + "-go", "w").close()
check_rest(iterator, reference, len(seen))
fresh = iter(loader(operations, **options))
fresh.set_state(state)
check_rest(fresh, reference, len(seen))
