"""Measures whether one slow sample delays the other workers of a PyTorch loader.

Prints us per sample; lower is better.  A sample takes a millisecond, one in a hundred
50 ms; batch_size=1, 2 workers, batches in order, ``reorder_window=128`` of ours.
"ideal" is each worker's share of the samples in a process that never waits.

    python benchmarks/bench_torch_slow.py
"""

import functools
import time
from typing import Any

import numpy as np

import peers
from harness import AtMost, Measurement, Question, Settings, main
from torch_question import CLASSES
from workloads import SEED

SAMPLES = 4000
QUICK_SAMPLES = 1000
WORKERS = 2
WINDOW = 128
FAST_S, SLOW_S = 1e-3, 50e-3


class Samples:
    """Samples; one of each hundred is slow."""

    def __init__(self, size: int) -> None:
        places = np.random.default_rng(SEED).integers(100, size=size // 100)
        seconds = np.full((size // 100, 100), FAST_S)
        seconds[np.arange(size // 100), places] = SLOW_S
        self.seconds = seconds.reshape(-1).tolist()

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds[index])
        return index


def _samples(settings: Settings) -> Samples:
    return Samples(QUICK_SAMPLES if settings.quick else SAMPLES)


def _measure(name: str, settings: Settings) -> Measurement:
    options: dict[str, Any] = {"reorder_window": WINDOW} if name == "gristmill" else {}
    samples = _samples(settings)
    batches = iter(CLASSES[name]()(samples, num_workers=WORKERS, **options))
    start = next(batches).item()  # By now the workers have started.
    began = time.perf_counter()
    numbers = [start, *(batch.item() for batch in batches)]
    seconds = time.perf_counter() - began
    assert numbers == list(range(len(samples)))
    return Measurement(seconds / (len(samples) - 1) * 1e6)


def _ideal(settings: Settings) -> Measurement:
    samples = _samples(settings)
    shares = [samples.seconds[worker::WORKERS] for worker in range(WORKERS)]
    units = [functools.partial(_sleep, share) for share in shares]
    seconds = peers.seconds_in_processes(units, len(samples) // WORKERS)
    return Measurement(seconds / len(samples) * 1e6)


def _sleep(share: list[float], number: int) -> None:
    time.sleep(share[number])


QUESTION = Question(
    name="torch_slow",
    text="1 % of samples 50x slower, in order, batch_size=1, 2 workers",
    unit="us/sample",
    contestants={
        "gristmill": functools.partial(_measure, "gristmill"),
        "torch": functools.partial(_measure, "torch"),
        "ideal": _ideal,
    },
    targets=(AtMost(1 / 0.9, "ideal"),),
)

if __name__ == "__main__":
    main(QUESTION)
