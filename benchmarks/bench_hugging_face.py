"""Measures batches of a Hugging Face dataset against its own iteration.

Prints us of processor time per batch; lower is better.  1 M rows of 20 columns of
numbers in chunks of 1000 rows, as ``Dataset.map`` writes them, in numpy format, batch
1024, one process.  Gristmill shuffles all rows; "iter" is ``ds.iter(1024)``, in order;
"indexed" is ``ds[rows]`` of shuffled numbers.

    python benchmarks/bench_hugging_face.py
"""

import functools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import column_question as question
import peers
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch
from workloads import ROWS, SEED

CHUNK_ROWS = 1000


def _dataset(rows: int) -> Any:
    import pyarrow

    table = pyarrow.table(question.columns(rows))
    chunks = pyarrow.Table.from_batches(table.to_batches(max_chunksize=CHUNK_ROWS))
    return question.quiet_datasets().Dataset(chunks).with_format("numpy")


def _gristmill(dataset: Any) -> Iterator[Any]:
    gristmill = peers.import_gristmill()
    loader = gristmill.DataLoader(
        data_source=dataset,
        sampler=gristmill.IndexSampler(len(dataset), shuffle=True, seed=SEED),
        operations=[gristmill.Batch(question.BATCH)],
        worker_count=0,
    )
    return iter(loader)


def _in_order(dataset: Any) -> Iterator[Any]:
    while True:
        yield from dataset.iter(question.BATCH)


def _indexed(dataset: Any) -> Iterator[Any]:
    rng = np.random.default_rng(SEED)
    while True:
        order = rng.permutation(len(dataset))
        for begin in range(0, len(dataset), question.BATCH):
            yield dataset[order[begin : begin + question.BATCH]]


def _measure(load: Any, settings: Settings) -> Measurement:
    dataset = _dataset(settings.records or (ROWS // 5 if settings.quick else ROWS))
    seconds = seconds_per_batch(
        load(dataset), settings.seconds, clock=time.process_time
    )
    return Measurement(seconds * 1e6)


QUESTION = Question(
    name="hugging_face",
    text="20 columns of a Hugging Face dataset in numpy format, batch 1024",
    unit="us/batch (processor)",
    contestants={
        "gristmill": functools.partial(_measure, _gristmill),
        "iter": functools.partial(_measure, _in_order),
        "indexed": functools.partial(_measure, _indexed),
    },
    targets=(AtLeast(3, ("iter",)), AtLeast(3, ("indexed",))),
)

if __name__ == "__main__":
    main(QUESTION)
