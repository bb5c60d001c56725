"""Measures a global shuffle of a Parquet file against Hugging Face's.

Prints us of processor time per batch; lower is better.  20 columns of numbers, batch
1024, one process; the file fits Gristmill's cache, and has been read once.  "hugging
face" is ``ds.shuffle()[a:b]`` of a map-style dataset in numpy format; "hugging face,
torch" reads the same dataset unshuffled through torch's DataLoader, which shuffles.

    python benchmarks/bench_parquet_global.py
"""

import functools
import time
from collections.abc import Iterator
from typing import Any

import column_question as question
import peers
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch
from workloads import ROWS, SEED


def _gristmill(path: str) -> Iterator[Any]:
    gristmill = peers.import_gristmill()
    source = gristmill.sources.ParquetDataSource(path)
    sampler = gristmill.IndexSampler(len(source), shuffle=True, seed=SEED)
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[gristmill.Batch(question.BATCH)],
        worker_count=0,
    )
    return iter(loader)


def _dataset(path: str) -> Any:
    datasets = question.quiet_datasets()
    return datasets.Dataset.from_parquet(path).with_format("numpy")


def _hugging_face(path: str) -> Iterator[Any]:
    rows = _dataset(path).shuffle(seed=SEED)
    while True:
        for begin in range(0, len(rows), question.BATCH):
            yield rows[begin : begin + question.BATCH]


def _hugging_face_torch(path: str) -> Iterator[Any]:
    loader = peers.import_torch().utils.data.DataLoader
    rows = _dataset(path).with_format("torch")
    while True:
        yield from loader(rows, batch_size=question.BATCH, shuffle=True)


def _measure(load: Any, warm: int, settings: Settings) -> Measurement:
    path = question.file(settings.records or (ROWS // 5 if settings.quick else ROWS))
    seconds = seconds_per_batch(
        load(path), settings.seconds, warm=warm, clock=time.process_time
    )
    return Measurement(seconds * 1e6)


QUESTION = Question(
    name="parquet_global",
    text="20 columns of a Parquet file in memory, all rows shuffled, batch 1024",
    unit="us/batch (processor)",
    contestants={
        # After the first epoch all row groups are decoded.
        "gristmill": functools.partial(_measure, _gristmill, 64),
        "hugging face": functools.partial(_measure, _hugging_face, 4),
        "hugging face, torch": functools.partial(_measure, _hugging_face_torch, 4),
    },
    targets=(AtLeast(20, ("hugging face", "hugging face, torch")),),
)

if __name__ == "__main__":
    main(QUESTION)
