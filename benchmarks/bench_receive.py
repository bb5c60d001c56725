"""Measures the consumer's cost of receiving batches from workers.

Prints ms of the consumer's CPU time, all its threads, per GiB received; lower is
better. The consumer does not read the image batches of bench_images, because reading
costs the same for every loader.

    python benchmarks/bench_receive.py
"""

import functools
import time

import peers
from harness import GRAIN, AtLeast, Measurement, Question, Settings, main, throughput
from workloads import IMAGE_BATCH, IMAGE_BATCH_BYTES, Workload, images

WORKERS = 2


def _measure(load, in_order: bool, settings: Settings) -> Measurement:
    source = images()
    work = Workload(source, batch_size=IMAGE_BATCH, workers=WORKERS)
    seconds, answers = throughput(
        load, work, source, settings, in_order=in_order, clock=time.process_time
    )
    return Measurement(seconds * 1e3 / IMAGE_BATCH_BYTES * 2**30, answers)


QUESTION = Question(
    name="receive",
    text="consumer's CPU time per GiB received from 2 workers",
    unit="ms/GiB",
    contestants={
        "gristmill": functools.partial(_measure, peers.gristmill, True),
        "grain default": functools.partial(_measure, peers.grain_default, True),
        "grain (0, 0)": functools.partial(_measure, peers.grain_no_threads, True),
        "torch": functools.partial(_measure, peers.torch, False),
    },
    targets=(AtLeast(10, GRAIN),),
)

if __name__ == "__main__":
    main(QUESTION)
