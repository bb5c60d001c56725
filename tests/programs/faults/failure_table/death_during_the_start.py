import contextlib
import os
import random
import signal
import sys
import threading

from faults.toolbox import Add, check_rest, children, loader, undisturbed, wait_until

victim = sys.argv[1]
chance = random.Random(3)
reference = undisturbed([Add()])


def kill(delay_s):
    pids = []
    for _ in wait_until("a victim"):
        pids = children(os.getpid())
        if victim == "zygote":
            pids = [z for pid in pids for z in children(pid)]
        if pids:
            break
    threading.Event().wait(delay_s)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[0], signal.SIGKILL)


for _ in range(8):
    # Only twice: a third death before any worker has started would be an error.
    iterator = iter(loader([Add()]))
    killer = threading.Thread(target=lambda: [kill(chance.random() / 5)] * 2)
    killer.start()
    check_rest(iterator, reference, 0)
    killer.join()
    iterator.close()
