"""Measures the processor time of batches for 8 ranks of one host.

Prints ms of processor time, of all ranks and workers together, for each batch of 32
JPEG files that one rank gets, or that all ranks get if they read the same batches;
lower is better.  "one loader" has one rank and 2 workers, "8 loaders" have 2 each.
Ranks read one byte of each page.  `bench_host_cpu_small.py` has batches that take
little time to compute, so that it shows the cost of sharing.

    python benchmarks/bench_host_cpu.py
"""

import functools

from harness import AtMost, Measurement, Question, Settings, main
from host_question import DEALT, SAME, Sharing, pictures, sharing_ranks

# The number of different batches that all ranks take together.
BATCHES = 192
WARM = 2


def measure(make, batches: int, sharing: Sharing, settings: Settings) -> Measurement:
    count = batches // 4 if settings.quick else batches
    each = count if sharing.same else count // sharing.ranks
    with sharing_ranks(sharing, make) as ranks:
        ranks.call("first")
        ranks.call("take", WARM * (count // each))
        before = ranks.processor_s()
        ranks.call("take", each)
        seconds = ranks.processor_s() - before
    return Measurement(seconds / count * 1e3)


QUESTION = Question(
    name="host_cpu",
    text="processor time of 32 decoded JPEG files, 8 ranks of one host",
    unit="ms",
    contestants={
        name: functools.partial(measure, pictures, BATCHES, sharing)
        for name, sharing in (DEALT | SAME).items()
    },
    targets=(
        AtMost(1.1, "one loader"),
        AtMost(1.1, "one loader", ours="gristmill, broadcast"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
