"""Measures how long a program waits for a batch when a node of the cluster is lost.

Prints the seconds of the longest `next` after one of two nodes is killed, with its
object store and a busy actor; lower is better. Batches of 256 records of 1 KiB. Ray
watches its nodes with its default settings.

    python benchmarks/bench_ray_node.py
"""

import functools
import time

import ray_question
from harness import AtMost, Measurement, Question, Settings, main
from workloads import Workload, answer

STEP = functools.partial(ray_question.record, (1024,))
WORK = Workload(range(400_000), batch_size=256, step=STEP)
BEFORE, AFTER = 100, 400


def _measure(settings: Settings) -> Measurement:
    del settings
    with ray_question.cluster() as (cluster, nodes):
        batches = ray_question.gristmill(WORK)
        taken = [next(batches) for _ in range(BEFORE)]
        cluster.remove_node(nodes[0], allow_graceful=False)
        longest = 0.0
        for _ in range(AFTER):
            start = time.perf_counter()
            taken.append(next(batches))
            longest = max(longest, time.perf_counter() - start)
        batches.close()
    return Measurement(longest, {"records": answer(iter(taken)).records})


QUESTION = Question(
    name="ray_node",
    text="longest wait for a batch when one of two nodes of a Ray cluster is lost",
    unit="s",
    contestants={"gristmill": _measure},
    targets=(AtMost(5),),
)

if __name__ == "__main__":
    main(QUESTION)
