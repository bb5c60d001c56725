import sys

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint.experimental.v1 as ocp

from unit.peers.test_orbax import loader, wrapped

# Saves in the background after three batches, with arrays, by Orbax's newer API.

wrapper, folder = sys.argv[1:]
iterator = wrapped(wrapper, loader())
for _ in range(3):
    next(iterator)
model = {"w": jnp.ones(3)}
saving = ocp.save_checkpointables_async(folder, {"data": iterator, "model": model})
rest = [np.asarray(next(iterator)).tolist()]
saving.result()
rest += [np.asarray(batch).tolist() for batch in iterator]

again = wrapped(wrapper, loader())
found = ocp.load_checkpointables(folder, {"data": again, "model": model})
assert found["data"] is again
assert [np.asarray(batch).tolist() for batch in again] == rest and len(rest) == 7
