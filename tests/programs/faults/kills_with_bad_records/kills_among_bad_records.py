import json
import os
import signal
import sys
import tempfile

import gristmill as g
from faults.toolbox import At, Once, digest, expect, loader

on_error, batch = sys.argv[1], int(sys.argv[2])


class Bad(g.RandomMapTransform):
    def random_map(self, x, rng):
        drawn = int(rng.integers(1000))
        if x % 7 == 3:
            raise KeyError(int(x))
        return x * 1000 + drawn


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def run(workers, operations):
    with tempfile.NamedTemporaryFile("r") as log:
        iterator = iter(
            loader(
                operations,
                workers=workers,
                batch=batch,
                on_error=on_error,
                quarantine=log.name,
            )
        )
        outputs = digest(iterator)
        lines = [json.loads(line) for line in log]
        for line in lines:
            del line["time"]
        return outputs, lines, iterator.errors.count


wanted = run(0, [Bad()])
assert wanted[2] == len([x for x in range(96) if x % 7 == 3])
with tempfile.TemporaryDirectory() as folder:
    faults = [At(x, Once(f"{folder}/{x}", kill)) for x in (5, 30, 40, 95)]
    assert run(2, [*faults, Bad()]) == wanted
    assert len(os.listdir(folder)) == 4
# A record that kills its worker every time does not count as a bad record.
iterator = iter(loader([At(30, kill), Bad()], batch=batch, on_error=on_error))
expect(g.WorkerDied, lambda: list(iterator))
