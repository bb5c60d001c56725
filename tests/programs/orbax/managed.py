import importlib
import sys

import orbax.checkpoint as ocp

from unit.peers.test_orbax import loader

# Saves after three batches and restores to a new iterator, through Orbax.


def manager():
    return ocp.CheckpointManager(folder)


saving, restoring, folder = sys.argv[1:]
iterator = iter(loader(saving))
for _ in range(3):
    next(iterator)
save = importlib.import_module(saving + ".checkpoint").CheckpointSave
with manager() as saved:
    saved.save(7, args=ocp.args.Composite(data=save(iterator)))
    saved.wait_until_finished()
rest = [batch.tolist() for batch in iterator]

again = iter(loader(restoring))
restore = importlib.import_module(restoring + ".checkpoint").CheckpointRestore
with manager() as saved:
    found = saved.restore(7, args=ocp.args.Composite(data=restore(again)))
assert found["data"] is again
assert [batch.tolist() for batch in again] == rest and len(rest) == 7
