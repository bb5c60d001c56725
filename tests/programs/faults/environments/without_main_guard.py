import numpy as np

import gristmill as g

offset = 100


def closure(by):
    class Shift(g.MapTransform):
        def map(self, x):
            return x + by + offset

    return Shift()


class Times(g.RandomMapTransform):
    def __init__(self, function):
        self.function = function

    def random_map(self, x, rng):
        return self.function(x) + rng.integers(5)


def run(workers):
    loader = g.DataLoader(
        data_source=[{"x": np.int64(i)} for i in range(40)],
        sampler=g.IndexSampler(40, shuffle=True, seed=3, num_epochs=1),
        operations=[
            closure_of_dicts,
            closure(7),
            Times(lambda x: x * offset),
            g.Batch(4),
        ],
        worker_count=workers,
        streams=2,
    )
    return [batch.tolist() for batch in loader]


class Get(g.MapTransform):
    def map(self, x):
        return x["x"]


closure_of_dicts = Get()
assert run(2) == run(0)
print("equal")
