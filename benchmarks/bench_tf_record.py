"""Measures shuffled records of a TFRecord file through a loader.

Prints us per record; lower is better.  200,000 records of 1 KiB through
``np.frombuffer``, batch 256, 0 workers.  Gristmill shuffles all of the file, by its
index; Grain has no random access and reads from the first record to the last.

    python benchmarks/bench_tf_record.py
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import peers
from harness import AtLeast, Measurement, Question, Settings, main, throughput
from record_files import noise, tf_record
from record_peers import parse
from workloads import BATCH, Workload

RECORDS = 200_000
CHECKED_RECORDS = 4096


def _gristmill(work: Workload) -> Iterator[Any]:
    source = peers.import_gristmill().sources.TFRecordDataSource(work.source)
    return peers.gristmill(dataclasses.replace(work, source=source))


def _grain(work: Workload) -> Iterator[Any]:
    """Grain's dataset of one TFRecord file, repeated, in order."""
    dataset = peers.import_grain().experimental.TFRecordIterDataset(work.source)
    batches = dataset.map(work.step).batch(work.batch_size, drop_remainder=True)
    for _ in itertools.count() if work.epochs is None else range(work.epochs):
        yield from batches


def _measure(
    load: Callable[[Workload], Iterator[Any]], settings: Settings
) -> Measurement:
    def path(count: int) -> str:
        return tf_record(f"noise-{count}", lambda: noise(count))

    work = Workload(path(settings.records or RECORDS), step=parse)
    checked = path(CHECKED_RECORDS)
    seconds, answers = throughput(load, work, checked, settings, in_order=False)
    return Measurement(seconds / BATCH * 1e6, answers)


QUESTION = Question(
    name="tf_record",
    text="TFRecord files: shuffled by an index, against read in order, 0 workers",
    unit="us/record",
    contestants={
        "gristmill": functools.partial(_measure, _gristmill),
        "grain in order": functools.partial(_measure, _grain),
    },
    targets=(AtLeast(1, ("grain in order",)),),
)

if __name__ == "__main__":
    main(QUESTION)
