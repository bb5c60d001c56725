"""Measures batches of small records from a Ray cluster of three nodes.

Prints ms per batch; lower is better.  Batches of 256 records of 1 KiB, each made by a
Python function of its number. Gristmill shuffles and delivers in a fixed order. Ray
Data reads in order, and delivers in the order of completion except for "in order".
Gristmill computes 16 batches per call of an actor, or one.

    python benchmarks/bench_ray_records.py
"""

import functools

import ray_question
from harness import AtLeast, Question, main
from workloads import Workload

STEP = functools.partial(ray_question.record, (1024,))
WORK = Workload(range(400_000), batch_size=256, step=STEP)

LOADERS = {
    **ray_question.LOADERS,
    "gristmill": functools.partial(ray_question.gristmill, batches_per_call=16),
    "gristmill, a call a batch": ray_question.gristmill,
}

QUESTION = Question(
    name="ray_records",
    text="batches of 256 records of 1 KiB from a Ray cluster, 2 CPUs",
    unit="ms/batch",
    contestants={
        name: functools.partial(ray_question.measure, load, WORK, range(8192))
        for name, load in LOADERS.items()
    },
    # Both cores are busy, mostly with Ray's raylet: README.md has the profile.
    targets=(
        AtLeast(2, ("Ray Data", "Ray Data, in order")),
        AtLeast(1.5, ("tf.data service",)),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
