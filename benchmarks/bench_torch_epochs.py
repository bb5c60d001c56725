"""Measures the time that a later epoch of a PyTorch loader takes to start.

Prints milliseconds from the call of iter() to the first batch, the median of epochs
after the first, with 2 workers that do not persist; lower is better.

    python benchmarks/bench_torch_epochs.py
"""

import functools
import statistics
import time

from bench_torch_first_batch import Samples
from harness import AtMost, Measurement, Question, Settings, main
from torch_question import CLASSES

EPOCHS = 20
QUICK_EPOCHS = 5


def _measure(name: str, context: str | None, settings: Settings) -> Measurement:
    loader = CLASSES[name]()(
        Samples(), batch_size=512, num_workers=2, multiprocessing_context=context
    )
    starts = []
    for _ in range(1 + (QUICK_EPOCHS if settings.quick else EPOCHS)):
        began = time.perf_counter()
        batches = iter(loader)
        next(batches)
        starts.append(time.perf_counter() - began)
        assert sum(1 for _ in batches) == 19
    return Measurement(statistics.median(starts[1:]) * 1e3)


QUESTION = Question(
    name="torch_epochs",
    text="start of a later epoch of a PyTorch loader, 2 workers",
    unit="ms",
    contestants={
        **{name: functools.partial(_measure, name, None) for name in CLASSES},
        "gristmill, launcher": functools.partial(_measure, "gristmill", "launcher"),
    },
    targets=(AtMost(1, "torch"),),
)

if __name__ == "__main__":
    main(QUESTION)
