"""What does it cost that every iterator can report which stage limits?

Prints % of processor time; lower is better.  ``range(10M).shuffle.map(x + 1)`` in
batches of 256: iterated over as usual, against the same without the timing of some
calls and blocks that `iterator.report()` is made of.  "single" is without batches.
Both are taken in turns of a few milliseconds, so that what else the machine does falls
on both.  What is timed once in a while is timed as often as if the turns of the other
were its own, so that it counts about twice.

    python benchmarks/bench_watching.py
"""

import itertools
import time

from harness import AtMost, Measurement, Question, Settings, main

TURN_S = 3e-3
WARM_S = 0.5
# Where its objects lie in memory makes an iterator faster or slower, by as much.
PAIRS = 6


def _cost(batch: int | None, settings: Settings) -> Measurement:
    import gristmill as grain
    from gristmill._dataset.model.observer import as_inner

    ds = grain.MapDataset.range(10_000_000).shuffle(1).repeat()
    ds = ds.map(lambda x: x + 1).to_iter_dataset()
    if batch is not None:
        ds = ds.batch(batch)
    watched_s = bare_s = 0.0
    for _ in range(PAIRS):
        with as_inner():
            bare = iter(ds)
        found = _times_of(iter(ds), bare, 2 * settings.seconds)
        watched_s += found[0]
        bare_s += found[1]
    return Measurement((watched_s / bare_s - 1) * 100)


def _times_of(watched, bare, seconds: float) -> tuple[float, float]:
    """Processor time of the turns of each."""
    _outputs_of_a_turn(watched)
    count = _outputs_of_a_turn(bare)
    took = {watched: 0.0, bare: 0.0}
    until = time.perf_counter() + seconds
    turns = itertools.cycle((watched, bare, bare, watched))
    while time.perf_counter() < until:
        for iterator in itertools.islice(turns, 4):
            began = time.process_time()
            for _ in itertools.islice(iterator, count):
                pass
            took[iterator] += time.process_time() - began
    return took[watched], took[bare]


def _outputs_of_a_turn(iterator) -> int:
    """How many outputs take about `TURN_S`, once all is warm."""
    count = 0
    until = time.perf_counter() + WARM_S
    while time.perf_counter() < until:
        next(iterator)
        count += 1
    return max(int(count * TURN_S / WARM_S), 1)


QUESTION = Question(
    name="watching",
    text="what timing some calls and blocks costs a cheap chain, batch 256",
    unit="% of CPU time",
    contestants={
        "gristmill": lambda settings: _cost(256, settings),
        "single": lambda settings: _cost(None, settings),
    },
    targets=(AtMost(1), AtMost(1, ours="single")),
)

if __name__ == "__main__":
    main(QUESTION)
