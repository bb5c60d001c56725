"""Measures the time to the first batch from workers of a PyTorch loader.

Prints milliseconds from the call of iter() to the first batch, in a process that has
imported its library; lower is better. By default workers are forks of the process.

    python benchmarks/bench_torch_first_batch.py
"""

import functools
import time
from typing import Any

from harness import AtMost, Measurement, Question, Settings, main
from torch_question import CLASSES


class Samples:
    """Samples that equal their index."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> int:
        return index


def measure(
    name: str, workers: int, context: str | None, settings: Settings
) -> Measurement:
    del settings
    kind: Any = CLASSES[name]()
    loader = kind(
        Samples(), batch_size=32, num_workers=workers, multiprocessing_context=context
    )
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
        "gristmill": functools.partial(OURS, 2, None),
        "gristmill, 16 workers": functools.partial(OURS, 16, None),
        "gristmill, forkserver": functools.partial(OURS, 2, "forkserver"),
        "gristmill, spawn": functools.partial(OURS, 2, "spawn"),
        "gristmill, launcher": functools.partial(OURS, 2, "launcher"),
        "torch": functools.partial(TORCH, 2, None),
        "torch, 16 workers": functools.partial(TORCH, 16, None),
        "torch, forkserver": functools.partial(TORCH, 2, "forkserver"),
        "torch, spawn": functools.partial(TORCH, 2, "spawn"),
    },
    targets=(
        AtMost(1, "torch"),
        AtMost(1, "torch, 16 workers", ours="gristmill, 16 workers"),
        AtMost(1.1, "torch, forkserver", ours="gristmill, forkserver"),
        AtMost(1.1, "torch, spawn", ours="gristmill, spawn"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
