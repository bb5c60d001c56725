"""Measures records of 71 KB, shuffled in windows, from a server 20 ms away.

Prints us of wall time per record; lower is better.  Windows of 16 ranges of 64
neighbours are mixed by `GroupShuffleSampler`; np.frombuffer on each, batch 64.
"webdataset" reads tar files of the same records one after the other, by curl like its
users do, and mixes them by a buffer of the same number of records.

    python benchmarks/bench_far_windows.py
"""

import functools

import far_peers
from far_question import far
from harness import AtLeast, Question, main

QUESTION = Question(
    name="far_windows",
    text="71 KB records, shuffled in windows of 1024, 20 ms a request, batch 64",
    unit="us/record",
    contestants={
        "gristmill": functools.partial(
            far, functools.partial(far_peers.gristmill, windows=True)
        ),
        "gristmill, 2 workers": functools.partial(
            far, functools.partial(far_peers.gristmill, windows=True, workers=2)
        ),
        "webdataset": functools.partial(far, far_peers.webdataset),
        "webdataset, 2 workers": functools.partial(
            far, functools.partial(far_peers.webdataset, workers=2)
        ),
    },
    targets=(
        AtLeast(1.0, ("webdataset",)),
        AtLeast(1.0, ("webdataset, 2 workers",), ours="gristmill, 2 workers"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
