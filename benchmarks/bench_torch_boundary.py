"""Measures whether a PyTorch loader stalls between two epochs.

Prints milliseconds between two batches: the mean over epochs of 5 batches, between
epochs ("gristmill", "torch") and within an epoch ("gristmill, inside"). "gristmill" has
`overlap_epochs=True`, "gristmill, default" does not. A batch takes a worker 4 ms and
its use takes 5 ms; there are 2 persistent workers.

    python benchmarks/bench_torch_boundary.py
"""

import functools
import statistics
import time
from typing import Any

from harness import AtMost, Measurement, Question, Settings, main
from torch_question import CLASSES

EPOCHS = 100
QUICK_EPOCHS = 20
BATCHES = 5
BATCH_S = 4e-3
USE_S = 5e-3
OVERLAP = {"overlap_epochs": True}


class Samples:
    """Five slow samples."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> int:
        time.sleep(BATCH_S)
        return index


def _measure(
    name: str, at_boundary: bool, options: dict[str, Any], settings: Settings
) -> Measurement:
    kind: Any = CLASSES[name]()
    loader = kind(Samples(), num_workers=2, persistent_workers=True, **options)
    times = []
    for _ in range(1 + (QUICK_EPOCHS if settings.quick else EPOCHS)):
        for number, batch in enumerate(loader):
            times.append(time.perf_counter())
            assert batch.item() == number
            time.sleep(USE_S)
    gaps = [
        after - before
        for place, (before, after) in enumerate(
            zip(times[BATCHES:], times[BATCHES + 1 :], strict=False)
        )
        if (place % BATCHES == BATCHES - 1) == at_boundary
    ]
    return Measurement(statistics.mean(gaps) * 1e3)


QUESTION = Question(
    name="torch_boundary",
    text="gap between epochs of 5 batches of a PyTorch loader, 2 workers",
    unit="ms",
    contestants={
        "gristmill": functools.partial(_measure, "gristmill", True, OVERLAP),
        "gristmill, inside": functools.partial(_measure, "gristmill", False, OVERLAP),
        "gristmill, default": functools.partial(_measure, "gristmill", True, {}),
        "torch": functools.partial(_measure, "torch", True, {}),
    },
    targets=(AtMost(1.5, "gristmill, inside"),),
)

if __name__ == "__main__":
    main(QUESTION)
