"""Measures a shuffled row of a Parquet file against reading the file in order.

Prints us per row; lower is better.  One pass over a file of 1 M rows of an int64, an
int32, a float32, a float64 and a string, in row groups of 20,000; batch 256.
Gristmill shuffles all row groups and the rows of 8 at a time; Grain's
ParquetIterDataset reads in the order of the file.

    python benchmarks/bench_parquet.py
"""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import peers
from harness import AtLeast, Measurement, Question, Settings, main
from record_files import cached_file
from workloads import BATCH, CHECKED_ROWS, ROWS, SEED, answer

GROUP_ROWS = 20_000
IN_ORDER = "grain in order"


def _file(rows: int) -> str:
    import pyarrow
    from pyarrow import parquet

    def write(path: str) -> None:
        rng = np.random.default_rng(SEED)
        table = pyarrow.table(
            {
                "user": rng.integers(0, 1 << 40, rows),
                "item": rng.integers(0, 1 << 30, rows).astype(np.int32),
                "price": rng.random(rows, np.float32),
                "rating": rng.random(rows),
                "name": [f"row {number:07d}" for number in range(rows)],
            }
        )
        parquet.write_table(table, path, row_group_size=GROUP_ROWS)

    return cached_file(f"rows-{rows}.parquet", write)


def _shuffled(path: str, workers: int) -> Iterator[Any]:
    gristmill = peers.import_gristmill()
    source = gristmill.sources.ParquetDataSource(path)
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.samplers.GroupShuffleSampler(
            source.groups, num_epochs=1, seed=SEED
        ),
        operations=[gristmill.Batch(BATCH)],
        worker_count=workers,
    )
    return iter(loader)


def _in_order(path: str) -> Iterator[Any]:
    grain = peers.import_grain()
    return iter(grain.experimental.ParquetIterDataset(path).batch(BATCH))


def _measure(load: Callable[[str], Iterator[Any]], settings: Settings) -> Measurement:
    answers = {"records": answer(load(_file(CHECKED_ROWS))).records}
    rows = settings.records or (ROWS // 5 if settings.quick else ROWS)
    path = _file(rows)
    start = time.perf_counter()
    batches = sum(1 for _ in load(path))
    seconds = time.perf_counter() - start
    assert batches >= rows // BATCH
    return Measurement(seconds / rows * 1e6, answers)


def _contestant(load: Callable[[str], Iterator[Any]]) -> Any:
    return functools.partial(_measure, load)


QUESTION = Question(
    name="parquet",
    text="shuffled rows of a Parquet file, batch 256, against its rows in order",
    unit="us/row",
    contestants={
        "gristmill": _contestant(functools.partial(_shuffled, workers=0)),
        "gristmill, 2 workers": _contestant(functools.partial(_shuffled, workers=2)),
        IN_ORDER: _contestant(_in_order),
    },
    targets=(
        AtLeast(0.8, (IN_ORDER,)),
        AtLeast(0.8, (IN_ORDER,), ours="gristmill, 2 workers"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
