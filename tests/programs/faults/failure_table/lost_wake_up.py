import os
import signal
import sys
import threading

from faults.toolbox import (
    Add,
    await_asleep,
    await_parked,
    check_rest,
    digest,
    engine_processes,
    loader,
    of_kind,
    undisturbed,
)

operations = of_kind(sys.argv[1], Add())

reference = undisturbed(operations)
iterator = iter(loader(operations))
seen = [next(iterator)]
pids = engine_processes(2)["worker"]
for pid in pids:
    await_asleep(pid)
    # The kernel delivers wake-ups to the stopped process, which ignores them.
    os.kill(pid, signal.SIGSTOP)
# These outputs were ready. New units are published, and no worker takes them.
seen += [next(iterator) for _ in range(5)]


def kill():
    await_parked(threading.main_thread().native_id)
    os.kill(pids[0], signal.SIGKILL)
    os.kill(pids[1], signal.SIGCONT)


threading.Thread(target=kill).start()
check_rest(iterator, reference, len(seen))
assert digest(seen) == reference[: len(seen)]
