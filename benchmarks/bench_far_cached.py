"""Measures remote records of 71 KB in the second epoch, with a cache on this machine.

Prints us of wall time per record; lower is better. Like `bench_far_shuffled.py`, after
one epoch with `cache_dir=`; "local" reads the same file from the disk. Both files are
in the page cache.

    python benchmarks/bench_far_cached.py
"""

import functools

import far_peers
from far_question import again, far, local
from harness import AtLeast, Question, main

QUESTION = Question(
    name="far_cached",
    text="71 KB records, shuffled globally, the second epoch with cache_dir, batch 64",
    unit="us/record",
    contestants={
        "gristmill": again,
        "local": functools.partial(local, far_peers.gristmill),
        "without": functools.partial(far, far_peers.gristmill),
    },
    targets=(AtLeast(0.5, ("local",)),),
)

if __name__ == "__main__":
    main(QUESTION)
