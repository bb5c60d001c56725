"""Measures the time per record if the source is a NumPy array.

Prints ns per record; lower is better.  float32[1 M, 16], shuffle, batch 256, no
workers. "torch gathered" is PyTorch as experts use it for one array, with a sampler of
whole batches. It has no target, and is printed for a fair comparison.

    python benchmarks/bench_array.py
"""

import functools

import peers
from harness import AtLeast, Measurement, Question, Settings, main, throughput
from workloads import BATCH, CHECKED_ROWS, Workload, rows


def _measure(load, in_order: bool, settings: Settings) -> Measurement:
    table = rows()
    checked = table[:CHECKED_ROWS]
    seconds, answers = throughput(
        load, Workload(table), checked, settings, in_order=in_order
    )
    return Measurement(seconds / BATCH * 1e9, answers)


QUESTION = Question(
    name="array",
    text="a NumPy array as the source, shuffle, batch 256, 0 workers",
    unit="ns/record",
    contestants={
        "gristmill": functools.partial(_measure, peers.gristmill, True),
        "grain (0, 0)": functools.partial(_measure, peers.grain_no_threads, True),
        "torch": functools.partial(_measure, peers.torch, False),
        "torch gathered": functools.partial(_measure, peers.torch_gathered, False),
    },
    targets=(AtLeast(50, ("torch",)),),
)

if __name__ == "__main__":
    main(QUESTION)
