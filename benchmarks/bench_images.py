"""Measures image batches from 2 workers.

Prints ms per batch; lower is better.  Batches of 128 x (224, 224, 3) uint8, shuffled
out of an array of 512 images; the consumer reads one byte a page. "bare" is two
processes that copy the same rows into shared memory that they keep, without a reader:
the limit of the machine's memory.

    python benchmarks/bench_images.py
"""

import mmap

import numpy as np

import peers
from harness import GRAIN, AtLeast, Measurement, Question, Settings, main, throughput
from workloads import (
    IMAGE_BATCH,
    IMAGE_BATCH_BYTES,
    IMAGE_SHAPE,
    Workload,
    images,
    one_byte_a_page,
)

WORKERS = 2
SLOTS = 2
# By then every process has touched all memory that is reused.
WARM_BATCHES = 32


def _measure(load, in_order: bool, settings: Settings) -> Measurement:
    source = images()
    work = Workload(source, batch_size=IMAGE_BATCH, workers=WORKERS)
    seconds, answers = throughput(
        load,
        work,
        source,
        settings,
        in_order=in_order,
        use=one_byte_a_page,
        warm=WARM_BATCHES,
    )
    return Measurement(seconds * 1e3, answers)


def _bare(settings: Settings) -> Measurement:
    source = images()
    work = Workload(source, batch_size=IMAGE_BATCH, epochs=8)
    order = [indices.tolist() for indices in peers.index_batches(work)]
    shape = (SLOTS, IMAGE_BATCH, *IMAGE_SHAPE)

    def copier(first: int):
        memory = mmap.mmap(-1, SLOTS * IMAGE_BATCH_BYTES)
        slots = np.frombuffer(memory, np.uint8).reshape(shape)
        slots[:] = 1

        def unit(number: int) -> None:
            slot = slots[number % SLOTS]
            for position, row in enumerate(order[(first + number) % len(order)]):
                slot[position] = source[row]

        return unit

    count = int(settings.seconds * 200)
    units = [copier(worker) for worker in range(WORKERS)]
    seconds = peers.seconds_in_processes(units, count)
    return Measurement(seconds / (WORKERS * count) * 1e3)


QUESTION = Question(
    name="images",
    text="128 x (224,224,3) uint8 batches from 2 workers, one byte a page read",
    unit="ms/batch",
    contestants={**peers.loader_contestants(_measure), "bare": _bare},
    targets=(
        AtLeast(5, GRAIN),
        AtLeast(5, ("torch",)),
        AtLeast(0.7, ("bare",)),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
