"""Measures when batches arrive after the call of iter().

Prints the seconds until 200 batches of 128 x (224, 224, 3) uint8 have come from 2
workers, starting included; lower is better.  The consumer reads one byte a page.  The
batches of the first two seconds are plotted.

    python benchmarks/bench_over_time.py
"""

import time

import peers
from harness import GRAIN, AtLeast, Measurement, Question, Settings, main
from workloads import IMAGE_BATCH, Workload, images, one_byte_a_page

WORKERS = 2
BATCHES = 200
PLOTTED_S = 2.0
POINTS = 100
IMPORTS = {
    peers.gristmill: peers.import_gristmill,
    peers.grain_default: peers.import_grain,
    peers.grain_no_threads: peers.import_grain,
    peers.torch: peers.import_torch,
    peers.spdl: peers.import_spdl,
}


def _measure(load, in_order: bool, settings: Settings) -> Measurement:
    del in_order, settings
    IMPORTS[load]()
    work = Workload(images(), batch_size=IMAGE_BATCH, workers=WORKERS)
    times = []
    start = time.perf_counter()
    batches = load(work)
    while len(times) < BATCHES or times[-1] < PLOTTED_S:
        one_byte_a_page(next(batches))
        times.append(time.perf_counter() - start)
    del batches
    plotted = [(seconds, count + 1) for count, seconds in enumerate(times)]
    plotted = [point for point in plotted if point[0] <= PLOTTED_S]
    step = max(len(plotted) // POINTS, 1)
    return Measurement(times[BATCHES - 1], series=plotted[::step])


QUESTION = Question(
    name="over_time",
    text=f"the first {BATCHES} image batches from 2 workers, starting included",
    unit="s",
    contestants=peers.loader_contestants(_measure),
    targets=(AtLeast(5, GRAIN), AtLeast(2, ("torch",))),
)

if __name__ == "__main__":
    main(QUESTION)
