"""Measures the memory that loaders of 8 ranks of one host use.

Prints the summed PSS of all processes in MiB, after the ranks have taken batches of 32
JPEG files; lower is better.  It does not include what the ranks used when they had
made their loaders, but had not taken a batch: their imports, and their own lists of
200,000 files.

    python benchmarks/bench_host_memory.py
"""

import functools

from harness import AtMost, Measurement, Question, Settings, main
from host_question import DEALT, SAME, Sharing, pictures, sharing_ranks

BATCHES = 24


def _measure(sharing: Sharing, settings: Settings) -> Measurement:
    del settings
    with sharing_ranks(sharing, pictures) as ranks:
        before = ranks.pss_mib()
        ranks.call("first")
        ranks.call("take", BATCHES)
        ranks.processor_s()  # Until the workers have computed all that they may.
        return Measurement(ranks.pss_mib() - before)


QUESTION = Question(
    name="host_memory",
    text="memory of loaders of 32 decoded JPEG files, 8 ranks of one host",
    unit="MiB",
    contestants={
        name: functools.partial(_measure, sharing)
        for name, sharing in (DEALT | SAME).items()
    },
    targets=(
        AtMost(1.5, "one loader"),
        AtMost(1.5, "one loader", ours="gristmill, broadcast"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
