"""Measures one index of a shuffled sampler, alone and in blocks of 4096.

Prints ns per index; lower is better.  IndexSampler over 1 M records, shuffled.
Grain's ``sampler[i]`` also makes a generator for each record, used or not; "gristmill
[i]" is the same call here and has no target.

    python benchmarks/bench_indices.py
"""

import functools
import time

import numpy as np

import peers
from harness import AtLeast, Measurement, Question, Settings, main
from workloads import ROWS, SEED

BLOCK = 4096
CHECKED = 2 * BLOCK


def _sampler(library):
    return library.samplers.IndexSampler(
        ROWS,
        shard_options=library.sharding.NoSharding(),
        shuffle=True,
        num_epochs=1,
        seed=SEED,
    )


def _measure_calls(key_at, read, settings: Settings) -> Measurement:
    keys = [int(read(key_at(i))) for i in range(CHECKED)]
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < settings.seconds:
        for i in range(count, count + BLOCK):
            key_at(i % ROWS)
        count += BLOCK
    nanoseconds = (time.perf_counter() - start) / count * 1e9
    return Measurement(nanoseconds, {"keys": str(hash(tuple(keys)))})


def _items(import_library, settings: Settings) -> Measurement:
    sampler = _sampler(import_library())
    return _measure_calls(sampler.__getitem__, lambda m: m.record_key, settings)


def _one(settings: Settings) -> Measurement:
    plan = _sampler(peers.import_gristmill()).plan()
    return _measure_calls(plan.key, int, settings)


def _blocks(settings: Settings) -> Measurement:
    plan = _sampler(peers.import_gristmill()).plan()
    block = np.empty(BLOCK, np.int64)
    keys = []
    for first in range(0, CHECKED, BLOCK):
        plan.fill(first, 1, block)
        keys += block.tolist()
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < settings.seconds:
        plan.fill(count % (ROWS - BLOCK), 1, block)
        count += BLOCK
    nanoseconds = (time.perf_counter() - start) / count * 1e9
    return Measurement(nanoseconds, {"keys": str(hash(tuple(keys)))})


QUESTION = Question(
    name="indices",
    text="shuffled indices, one at a time and in blocks of 4096",
    unit="ns/index",
    contestants={
        "gristmill one": _one,
        "gristmill block": _blocks,
        "gristmill [i]": functools.partial(_items, peers.import_gristmill),
        "grain [i]": functools.partial(_items, peers.import_grain),
    },
    targets=(
        AtLeast(30, ("grain [i]",), ours="gristmill one"),
        AtLeast(500, ("grain [i]",), ours="gristmill block"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
