"""Measures one more step of a dataset, without the call of the user's function.

Prints ns per element and step; lower is better. Numbers go through eight identity maps
and through none. The figure is the difference divided by eight, minus the time of a
call of the same function in a ``for`` loop. A compiled loop calls faster than Python's
own, so the figure may be negative.

    python benchmarks/bench_dataset_step.py
"""

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import peers
from dataset_question import digest
from harness import AtMost, Measurement, Question, Settings, main
from workloads import BATCH

STEPS = 8
NUMBERS = 1_000_000
ROUNDS = 15


def identity(x: Any) -> Any:
    return x


def _chain(library: Any, steps: int) -> Any:
    dataset = library.MapDataset.range(NUMBERS)
    for _ in range(steps):
        dataset = dataset.map(identity)
    return dataset.batch(BATCH).to_iter_dataset(library.ReadOptions(0, 0))


def _best(run: Callable[[], int], settings: Settings) -> float:
    """Returns the shortest time per element, in ns."""
    rounds = []
    deadline = time.perf_counter() + settings.seconds / 3
    while len(rounds) < ROUNDS or time.perf_counter() < deadline:
        start = time.perf_counter()
        count = run()
        rounds.append((time.perf_counter() - start) / count * 1e9)
    return min(rounds)


def _measure(load: Callable[[], Any], settings: Settings) -> Measurement:
    library = load()
    answers = {"stream": digest(iter(_chain(library, STEPS)))}

    def batches(steps: int) -> Callable[[], int]:
        endless = itertools.chain.from_iterable(
            _chain(library, steps) for _ in itertools.count()
        )
        return lambda: sum(len(next(endless)) for _ in range(4))

    values = list(range(4 * BATCH))

    def calls() -> int:
        for value in values:
            identity(value)
        return len(values)

    def loop() -> int:
        for _ in values:
            pass
        return len(values)

    none, many = _best(batches(0), settings), _best(batches(STEPS), settings)
    call = _best(calls, settings) - _best(loop, settings)
    return Measurement((many - none) / STEPS - call, answers)


QUESTION = Question(
    name="dataset_step",
    text="one more identity map of a dataset, less the call itself",
    unit="ns/element",
    contestants={
        "gristmill": functools.partial(_measure, peers.import_gristmill),
        "grain": functools.partial(_measure, peers.import_grain),
    },
    targets=(AtMost(60),),
)

if __name__ == "__main__":
    main(QUESTION)
