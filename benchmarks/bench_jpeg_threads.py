"""Compares two threads with two workers, for steps that release the GIL.

Prints us per picture in wall time; lower is better.  The pipeline of `bench_jpeg` by
Gristmill, without workers and with.

    python benchmarks/bench_jpeg_threads.py
"""

import functools
import time

import jpeg_peers
from harness import AtLeast, Question, main
from jpeg_question import measure

WAYS = {
    "gristmill": functools.partial(jpeg_peers.gristmill, workers=0, threads=2),
    "gristmill, 1 thread": functools.partial(
        jpeg_peers.gristmill, workers=0, threads=1
    ),
    "gristmill, 2 workers": jpeg_peers.gristmill,
}

QUESTION = Question(
    name="jpeg_threads",
    text="JPEG 500x375, random crop to 224, flip, by 2 threads or 2 workers",
    unit="us/picture",
    contestants={
        name: functools.partial(measure, load, False, time.perf_counter)
        for name, load in WAYS.items()
    },
    targets=(AtLeast(0.95, ("gristmill, 2 workers",)),),
)

if __name__ == "__main__":
    main(QUESTION)
