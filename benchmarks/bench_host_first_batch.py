"""Measures the time until 8 ranks of one host have their first batch.

Prints the seconds until the last rank has a batch of 256 rows, if all begin at the same
time; lower is better.  The ranks have imported Gristmill and made their loaders.

    python benchmarks/bench_host_first_batch.py
"""

import functools
import time

from harness import AtMost, Measurement, Question, Settings, main
from host_question import DEALT, SAME, Sharing, numbers, sharing_ranks


def _measure(sharing: Sharing, settings: Settings) -> Measurement:
    del settings
    with sharing_ranks(sharing, numbers) as ranks:
        start = time.perf_counter()
        return Measurement(max(ranks.call("first")) - start)


QUESTION = Question(
    name="host_first_batch",
    text="time until 8 ranks of one host have a batch, trivial pipeline",
    unit="s",
    contestants={
        name: functools.partial(_measure, sharing)
        for name, sharing in (DEALT | SAME).items()
    },
    targets=(
        AtMost(1.3, "one loader"),
        AtMost(1.3, "one loader", ours="gristmill, broadcast"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
