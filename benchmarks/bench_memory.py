"""Measures the memory that worker processes add to a large Python list.

Prints the peak of the summed PSS of the process tree in MiB; lower is better.  A list
of 4 M dicts ``{'path': 80 characters, 'label': int, 'weight': float}`` is the source,
3 shuffled epochs, batch 256.  Smaller with ``--records 200000``.

    python benchmarks/bench_memory.py
"""

import functools
import multiprocessing
import os

import psutil

import peers
from harness import AtMost, Measurement, Question, Settings, main
from process_memory import pss_of
from workloads import Workload, path_records

RECORDS = 4_000_000
QUICK_RECORDS = 200_000
EPOCHS = 3
INTERVAL_S = 0.1


def _watch(root: int, stop, peak) -> None:
    """Stores the peak of the processes below ``root``, without this process."""
    own, process = os.getpid(), psutil.Process(root)
    while not stop.is_set():
        pids = [root, *(child.pid for child in process.children(recursive=True))]
        total = sum(pss_of(pid) for pid in pids if pid != own)
        peak.value = max(peak.value, total)
        stop.wait(INTERVAL_S)


def _measure(load, workers: int, settings: Settings) -> Measurement:
    # The watcher is spawned before the list exists, so that it shares no memory with
    # the processes that it watches.
    context = multiprocessing.get_context("spawn")
    stop, peak = context.Event(), context.Value("q", 0)
    watcher = context.Process(target=_watch, args=(os.getpid(), stop, peak))
    watcher.start()
    size = settings.records or (QUICK_RECORDS if settings.quick else RECORDS)
    records = path_records(size)
    work = Workload(records, workers=workers, epochs=EPOCHS)
    count = labels = 0
    for batch in load(work):
        count += len(batch["label"])
        labels += int(batch["label"].sum())
    stop.set()
    watcher.join()
    answers = {"records and labels": f"{count} {labels}"}
    return Measurement(peak.value / 2**20, answers)


QUESTION = Question(
    name="memory",
    text="peak PSS of the process tree, a list of 4 M records, 3 epochs",
    unit="MiB",
    contestants={
        f"gristmill {workers}w": functools.partial(_measure, peers.gristmill, workers)
        for workers in (0, 1, 4)
    },
    targets=(
        AtMost(1.5, "gristmill 0w", ours="gristmill 4w"),
        AtMost(1.05, "gristmill 1w", ours="gristmill 4w"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
