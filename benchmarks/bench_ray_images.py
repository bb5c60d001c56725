"""Measures large batches from a Ray cluster of three nodes.

Prints ms per batch; lower is better.  Batches of 128 x (224, 224, 3) uint8, 19 MB, each
image made by a Python function of its number. Gristmill shuffles and delivers in a
fixed order. Ray Data reads in order, and delivers in the order of completion except for
"in order".

    python benchmarks/bench_ray_images.py
"""

import functools

import ray_question
from harness import AtLeast, Question, main
from workloads import IMAGE_BATCH, IMAGE_SHAPE, Workload

STEP = functools.partial(ray_question.record, IMAGE_SHAPE)
WORK = Workload(range(40 * IMAGE_BATCH), batch_size=IMAGE_BATCH, step=STEP)

QUESTION = Question(
    name="ray_images",
    text="image batches of 19 MB from a Ray cluster, 2 CPUs",
    unit="ms/batch",
    contestants={
        name: functools.partial(
            ray_question.measure, load, WORK, range(4 * IMAGE_BATCH)
        )
        for name, load in ray_question.LOADERS.items()
    },
    targets=(
        AtLeast(1.5, ("Ray Data", "Ray Data, in order")),
        AtLeast(1.5, ("tf.data service",)),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
