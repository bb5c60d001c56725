import contextlib
import os
import random
import signal
import sys

import numpy as np

import gristmill as g
from faults.toolbox import digest, engine_processes
from gristmill._dataset.parallel import process_iterator


def resize(x, rng):
    return {"x": x, "row": np.resize(rng.integers(0, 256, 99, np.uint8), 9999)}


class Words(g.IterDataset):
    # Elements have no indices, and states differ in length.
    def __init__(self, count):
        super().__init__()
        self.part = range(count)

    def set_slice(self, sl, sequential_slice=False):
        self.part = self.part[sl]

    def __iter__(self):
        return WordsIterator(self.part)


class WordsIterator(g.DatasetIterator):
    def __init__(self, part):
        super().__init__()
        self.part, self.place = part, 0

    def __next__(self):
        if self.place == len(self.part):
            raise StopIteration
        self.place += 1
        return {"x": self.part[self.place - 1], "row": np.zeros(9999, np.uint8)}

    def get_state(self):
        return {"place": self.place, "filler": "x" * (self.place * 7919 % 60_000)}

    def set_state(self, state):
        self.place = state["place"]
        assert state == self.get_state()


source = g.MapDataset.range(1600).seed(3).shuffle()
CHAINS = {
    "batches": lambda: source.random_map(resize).to_iter_dataset().batch(4),
    "absent": lambda: (
        source.filter(lambda x: x % 3 > 0).map(lambda x: [x]).to_iter_dataset().batch(4)
    ),
    "counted": lambda: (
        source.to_iter_dataset().filter(lambda x: x % 5 > 0).random_map(resize).batch(4)
    ),
    "states": lambda: Words(400),
    "packing": lambda: (
        source.map(lambda x: {"t": np.full(x % 50 + 1, x)})
        .to_iter_dataset()
        .pipe(
            g.experimental.BestFitPackIterDataset,
            length_struct={"t": 64},
            num_packing_bins=5,
        )
        .filter(lambda row: row["t"][0] % 9 > 0)
        .batch(2)
    ),
    "mixed": lambda: g.IterDataset.mix(
        [Words(500), source.random_map(resize).to_iter_dataset()]
    ).batch(4),
}


def options(workers):
    return g.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)


def prefetched(workers):
    return CHAINS[sys.argv[1]]().mp_prefetch(options(workers), streams=3)


def flat(element):
    if isinstance(element, dict):
        return digest([np.asarray(leaf) for leaf in element.values()])
    return digest([np.asarray(element)])


process_iterator.MAX_RESTARTS = 100
chance = random.Random(7)
iterator = iter(prefetched(2))
alone = iter(prefetched(0))
killed = 0
for number, wanted in enumerate(alone):
    assert flat(next(iterator)) == flat(wanted), number
    assert iterator.get_state() == alone.get_state(), number
    if chance.random() < 0.1:
        victims = engine_processes(2)["worker"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(victims), signal.SIGKILL)
            killed += 1
    if chance.random() < 0.01:
        iterator.set_state(iterator.get_state())
assert next(iterator, None) is None
assert iterator.get_state() == alone.get_state()
assert killed > 20, killed
