"""Compares resuming far into the data with resuming at its beginning.

Prints ms for get_state, set_state on a new iterator and its first batch; lower is
better. A shuffled source of 2 * 10^9 integers records its reads, none of which may be
before the position of the state.

    python benchmarks/bench_resume.py
"""

import functools
import json
import time

import peers
from harness import AtMost, Measurement, Question, Settings, main
from workloads import SEED, Counting

RECORDS = 2_000_000_000
BATCH_SIZE = 10
ROUNDS = 20
# Grain reads this far ahead of the batch by default.
READ_AHEAD = 1000


def _measure(import_library, position: int, settings: Settings) -> Measurement:
    del settings
    library = import_library()
    sampler = library.samplers.IndexSampler(
        RECORDS,
        shard_options=library.sharding.NoSharding(),
        shuffle=True,
        num_epochs=1,
        seed=SEED,
    )
    source = Counting(RECORDS)
    loader = library.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[library.transforms.Batch(BATCH_SIZE)],
    )
    state = json.loads(iter(loader).get_state())
    state["last_seen_indices"]["0"] = position - 1
    at_position = iter(loader)
    at_position.set_state(json.dumps(state, indent=4).encode())
    ahead = [int(sampler[position + i].record_key) for i in range(READ_AHEAD)]
    seconds = []
    for _ in range(ROUNDS):
        source.reads.clear()
        start = time.perf_counter()
        resumed = iter(loader)
        resumed.set_state(at_position.get_state())
        batch = next(resumed)
        seconds.append(time.perf_counter() - start)
        assert batch.tolist() == ahead[:BATCH_SIZE]
        assert set(source.reads) <= set(ahead), "a record before the position was read"
        del resumed
    return Measurement(
        sorted(seconds)[ROUNDS // 2] * 1e3, {f"batch at {position}": str(ahead[:10])}
    )


NEAR, FAR = 10, 1_000_000_000
QUESTION = Question(
    name="resume",
    text="state save, restore and first batch at record 10^9 against record 10",
    unit="ms",
    contestants={
        "gristmill near": functools.partial(_measure, peers.import_gristmill, NEAR),
        "gristmill far": functools.partial(_measure, peers.import_gristmill, FAR),
        "grain near": functools.partial(_measure, peers.import_grain, NEAR),
        "grain far": functools.partial(_measure, peers.import_grain, FAR),
    },
    targets=(AtMost(1.5, "gristmill near", ours="gristmill far"),),
)

if __name__ == "__main__":
    main(QUESTION)
