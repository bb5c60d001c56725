"""Measures records of 71 KB, shuffled globally, from a server 20 ms away.

Prints us of wall time per record; lower is better.  One ArrayRecord file of 4096
records, np.frombuffer on each, batch 64. "bare N" is aiohttp with N concurrent requests
for the same ranges, without decoding or batches.

    python benchmarks/bench_far_shuffled.py
"""

import functools

import far_peers
from far_question import far
from harness import AtLeast, Question, main

BARE = tuple(f"bare {n}" for n in (64, 128, 256))

QUESTION = Question(
    name="far_shuffled",
    text="71 KB records, shuffled globally, 20 ms a request, batch 64",
    unit="us/record",
    contestants={
        "gristmill": functools.partial(far, far_peers.gristmill),
        "gristmill, 2 workers": functools.partial(
            far, functools.partial(far_peers.gristmill, workers=2)
        ),
        **{
            f"bare {n}": functools.partial(
                far, functools.partial(far_peers.bare, in_flight=n)
            )
            for n in (64, 128, 256)
        },
    },
    targets=(
        AtLeast(0.9, BARE),
        AtLeast(1.0, ("gristmill",), ours="gristmill, 2 workers"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
