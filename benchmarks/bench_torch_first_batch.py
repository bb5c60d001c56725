"""How soon do workers of a PyTorch loader give a first batch?

Prints milliseconds from the call of iter() to the first batch, in a process that has
imported its library; lower is better.  "gristmill" and "gristmill, 16 workers" had time
to start the launcher before, as while a script builds its model; "gristmill, cold" had
none.  Torch starts its workers by fork and by spawn.

    python benchmarks/bench_torch_first_batch.py
"""

import functools
import os
import time
from typing import Any

from harness import AtLeast, AtMost, Measurement, Question, Settings, main
from torch_question import CLASSES

# What a script does before its first epoch.
BUILDS_MODEL_S = 8.0


class Samples:
    """Numbers of which the first batch says where it comes from."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> int:
        return index


def measure(
    name: str, workers: int, context: str | None, wait_s: float, settings: Settings
) -> Measurement:
    del settings
    os.environ.pop("GRISTMILL_EARLY_LAUNCHER", None)
    kind: Any = CLASSES[name]()
    loader = kind(
        Samples(), batch_size=32, num_workers=workers, multiprocessing_context=context
    )
    time.sleep(wait_s)
    began = time.perf_counter()
    batches = iter(loader)
    first = next(batches)
    seconds = time.perf_counter() - began
    assert first.tolist() == list(range(32))
    return Measurement(seconds * 1e3)


OURS = functools.partial(measure, "gristmill")
TORCH = functools.partial(measure, "torch")
QUESTION = Question(
    name="torch_first_batch",
    text="first batch of a PyTorch loader, 2 workers",
    unit="ms",
    contestants={
        "gristmill": functools.partial(OURS, 2, None, BUILDS_MODEL_S),
        "gristmill, 16 workers": functools.partial(OURS, 16, None, BUILDS_MODEL_S),
        "gristmill, cold": functools.partial(OURS, 2, None, 0.0),
        "torch, fork": functools.partial(TORCH, 2, "fork", 0.0),
        "torch, spawn": functools.partial(TORCH, 2, "spawn", 0.0),
        "torch, spawn, 1 worker": functools.partial(TORCH, 1, "spawn", 0.0),
    },
    targets=(
        AtLeast(10, ("torch, spawn",)),
        AtMost(2, "torch, fork"),
        AtMost(1, "torch, spawn, 1 worker", ours="gristmill, cold"),
        AtMost(1.5, "gristmill", ours="gristmill, 16 workers"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
