import contextlib
import os
import random
import signal
import sys
import threading

import numpy as np

import gristmill as g
from faults.toolbox import Some, children, digest, loader, wait_until


# Batches of half a megabyte, so that many kills hit a worker while it writes.
class Row(g.RandomMapTransform):
    def random_map(self, x, rng):
        row = rng.integers(0, 256, 4096, dtype=np.uint8)
        return {"row": np.resize(row, 32 << 10), "x": x, "text": str(x)}


class Grow(g.MapTransform):
    # The first larger batch does not fit the existing slots.
    def map(self, item):
        if item["x"] % 512 >= 480:
            item["text"] *= 10_000
        return item


def flat(batches):
    for batch in batches:
        yield (digest([batch["row"], batch["x"]]), list(batch["text"]))


kind, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
operations = [Row(), Grow()]
if kind == "C":
    operations = [Some(), *operations]
options = {"batch": 16, "records": 256 + 192 * kills, "max_restarts": 100}
chance = random.Random(seed)
done = threading.Event()
delivered = threading.Condition()
count = 0
# The output count at which the next process is killed.
target = 0
# Maximum time that the consumer waits for a kill that is due, in seconds.
PATIENCE_S = 0.1
tally = dict.fromkeys(("launcher", "zygote", "worker"), 0)


def is_due():
    """Return whether the next kill is due, or the test has ended."""
    return count >= target or done.is_set()


def kill():
    global target
    rest = 0
    while sum(tally.values()) < kills:
        with delivered:
            # Kills are far enough apart for a worker to compute in between.
            target = count + chance.randrange(1, 9) + rest
            delivered.notify()
            delivered.wait_for(is_due)
        if done.wait(chance.random() * 0.004):
            return
        # After three kills without a started worker in between, the loader gives up.
        for _ in wait_until("a worker, or the end"):
            pids = {k: v for k, v in living().items() if v}
            if "worker" in pids or done.is_set():
                break
        if done.is_set():
            return
        what = chance.choices(list(pids), [WEIGHTS[k] for k in pids])[0]
        # It may have died with its parent already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(pids[what]), signal.SIGKILL)
            tally[what] += 1
            # Skip the outputs in flight, so that a worker starts before the next kill.
            rest = 0 if what == "worker" else 16


def living():
    launchers = children(os.getpid())
    zygotes = [z for launcher in launchers for z in children(launcher)]
    return {
        "launcher": launchers,
        "zygote": zygotes,
        "worker": [w for zygote in zygotes for w in children(zygote)],
    }


WEIGHTS = {"launcher": 1, "zygote": 1, "worker": 10}
iterator = iter(loader(operations, **options))
first = next(iterator)
killer = threading.Thread(target=kill)
killer.start()
reference = flat(loader(operations, workers=0, **options))
try:
    assert next(flat([first])) == next(reference)
    for number, (batch, wanted) in enumerate(
        zip(flat(iterator), reference, strict=False)
    ):
        assert batch == wanted, number
        with delivered:
            count += 1
            delivered.notify()
            if sum(tally.values()) < kills:
                delivered.wait_for(lambda: not is_due(), PATIENCE_S)
    assert next(reference, None) is None and next(iterator, None) is None
finally:
    done.set()
    with delivered:
        delivered.notify()
    killer.join()
print(tally)
assert sum(tally.values()) >= 0.8 * kills, tally
