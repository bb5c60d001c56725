import threading

import numpy as np

import gristmill as g
from faults.toolbox import expect


class Source:
    def __len__(self):
        return 64

    def __getitem__(self, key):
        odd = threading.Lock() if key == 40 else key
        return {"x": np.full(2000, key), "odd": odd}


made = g.DataLoader(
    data_source=Source(),
    operations=[g.Batch(1)],
    worker_count=1,
    sampler=g.IndexSampler(64, shuffle=False, num_epochs=1, seed=0),
)
iterator = iter(made)
seen = []


def drain():
    for batch in iterator:
        seen.append(set(batch["x"].ravel().tolist()))


error = expect(TypeError, drain)
assert "cannot pickle" in str(error), error
drain()
assert seen == [{key} for key in range(64) if key != 40], seen
