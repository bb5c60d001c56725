"""A script whose top level misbehaves in workers, as its first argument names.

It prints the findings of the workers of two loaders, and the number of times that its
top level has run in other processes.
"""

import os
import random
import signal
import sys
import threading
import time

import numpy as np

import gristmill

way, runs, *rest = sys.argv[1:]
assert not rest or rest == ["\udce9" * 70_000]
if __name__ != "__main__":
    with open(runs, "a") as file:
        file.write(f"{os.getpid()}\n")
    if way == "raises":
        raise KeyError("mine")
    if way == "exits":
        sys.exit("usage: top_level.py")
    if way == "ends":
        os._exit(7)
    if way == "threads":
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    if way == "signals":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGCONT)
    if way == "iterates":
        list(gristmill.load(range(2), worker_count=1))
    if way == "never ends":
        time.sleep(1000)
np.seterr(divide="raise")
random.seed(0)
np.random.seed(0)  # noqa: NPY002


class Look(gristmill.MapTransform):
    def map(self, i):
        if way == "signals":
            os.killpg(0, signal.SIGTERM)
        if way == "draws":
            return f"{random.random()} {np.random.rand()}"  # noqa: NPY002
        return np.geterr()["divide"]


class Keep(gristmill.FilterTransform):
    """Gives each worker its own stream, so that both must start."""

    def filter(self, _):
        return True


def found():
    steps = [Look(), Keep()]
    loader = gristmill.load(
        range(8), num_epochs=1, transformations=steps, worker_count=2
    )
    return " ".join(sorted(set(loader)))


if __name__ == "__main__":
    if way == "deletes":
        os.remove(__file__)
    if way == "signals":
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    if way == "never ends":
        iterator = iter(gristmill.load(range(8), worker_count=2))
        iterator.start_prefetch()
        iterator.close()
    else:
        print(found())
        print(found())
    with open(runs, "a+") as file:
        file.seek(0)
        print(len(file.readlines()))
