"""Twenty columns of numbers, in memory, in a Parquet file, and read by hand.

Half of the columns are integers and half are floats, of 4 and 8 bytes; row groups have
20,000 rows and windows 8 row groups.
"""

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import peers
from harness import Measurement, Settings, seconds_per_batch
from record_files import cached_file
from workloads import CHECKED_ROWS, ROWS, SEED, answer

COLUMNS = 20
GROUP_ROWS = 20_000
WINDOW = 8
BATCH = 1024
# A window has 19 MB, so the cache holds only windows in use and every epoch decodes.
CACHE_BYTES = 32 << 20
# Several whole windows, so that decoding at the start of a window counts fully.
BATCHES = WINDOW * GROUP_ROWS // BATCH

# Maps a path and a number of epochs (None for endless) to an iterator of batches.
Load = Callable[[str, int | None], Iterator[Any]]


def columns(rows: int) -> dict[str, np.ndarray]:
    """Returns 20 arrays of shape (rows,): int64, int32, float32, float64 in turn."""
    rng = np.random.default_rng(SEED)
    makes: list[Callable[[], np.ndarray]] = [
        lambda: rng.integers(0, 1 << 40, rows),
        lambda: rng.integers(0, 1000, rows).astype(np.int32),
        lambda: rng.random(rows, np.float32),
        lambda: rng.random(rows),
    ]
    return {f"c{i:02d}": makes[i % len(makes)]() for i in range(COLUMNS)}


def file(rows: int) -> str:
    """Returns the path of a Parquet file of `columns`."""
    import pyarrow
    from pyarrow import parquet

    def write(path: str) -> None:
        table = pyarrow.table(columns(rows))
        parquet.write_table(table, path, row_group_size=GROUP_ROWS)

    return cached_file(f"columns-{COLUMNS}-{rows}.parquet", write)


def passes(epochs: int | None) -> Iterator[int]:
    """Counts the epochs; None never ends."""
    return iter(range(epochs)) if epochs is not None else itertools.count()


def measure(
    load: Load, checked: bool, settings: Settings, clock: Callable[[], float]
) -> Measurement:
    """Times whole windows of batches of a file of 1 M rows, in us per batch."""
    answers = {}
    if checked:
        answers["records"] = answer(load(file(CHECKED_ROWS), 1)).records
    path = file(settings.records or ROWS)
    gc.collect()
    seconds = seconds_per_batch(
        load(path, None),
        settings.seconds,
        warm=BATCHES,
        at_least=2 * BATCHES,
        clock=clock,
    )
    return Measurement(seconds * 1e6, answers)


def by_hand(window: int, use_threads: bool = True) -> Load:
    """Reads like a program without a loader: shuffled row groups, mixed in windows.

    Pyarrow decodes columns on all cores at once, unless `use_threads` is False.
    """

    def load(path: str, epochs: int | None) -> Iterator[Any]:
        import pyarrow
        from pyarrow import parquet

        rng = np.random.default_rng(SEED)
        source = parquet.ParquetFile(path)
        for _ in passes(epochs):
            groups = rng.permutation(source.num_row_groups).tolist()
            for first in range(0, len(groups), window):
                tables = (
                    source.read_row_group(group, use_threads=use_threads)
                    for group in groups[first : first + window]
                )
                table = pyarrow.concat_tables([*tables])
                order = rng.permutation(len(table))
                shuffled = {
                    name: table[name].to_numpy()[order] for name in table.column_names
                }
                for begin in range(0, len(table), BATCH):
                    yield {
                        name: column[begin : begin + BATCH]
                        for name, column in shuffled.items()
                    }

    return load


def gristmill(workers: int) -> Load:
    """Gristmill's shuffle of windows of row groups."""

    def load(path: str, epochs: int | None) -> Iterator[Any]:
        gristmill = peers.import_gristmill()
        source = gristmill.sources.ParquetDataSource(path, cache_bytes=CACHE_BYTES)
        sampler = gristmill.samplers.GroupShuffleSampler(
            source.groups, window=WINDOW, num_epochs=epochs, seed=SEED
        )
        loader = gristmill.DataLoader(
            data_source=source,
            sampler=sampler,
            operations=[gristmill.Batch(BATCH)],
            worker_count=workers,
        )
        return iter(loader)

    return load


def quiet_datasets() -> Any:
    """Imports Hugging Face datasets, without network access and progress bars."""
    import os

    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    import datasets

    datasets.disable_progress_bars()
    return datasets


def hugging_face_iterable(path: str, epochs: int | None) -> Iterator[Any]:
    """Iterates Hugging Face's iterable dataset in numpy format, the rows in order.

    Its shuffle buffer contains single rows, and is much slower.
    """
    load = quiet_datasets().load_dataset
    for _ in passes(epochs):
        rows = load("parquet", data_files=path, split="train", streaming=True)
        yield from rows.with_format("numpy").iter(BATCH)
