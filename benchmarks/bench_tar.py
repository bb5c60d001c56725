"""Measures a shuffled sample of a tar file against webdataset's in order.

Prints us of processor time per sample, of all threads; lower is better, and 20 are
50,000 samples a second of one core.  A file of 8,000 samples of a "jpg" of 10 kB and a
"cls", in the page cache; each is read as a dict and dropped.  "in order" is our source
from its first sample to its last.

    python benchmarks/bench_tar.py
"""

import functools
import io
import itertools
import tarfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch
from record_files import cached_file
from workloads import SEED

SAMPLES = 8_000
SIZE = 10_000
BATCH = 100


def _write(count: int, path: str) -> None:
    rng = np.random.default_rng(SEED)
    with tarfile.open(path, "w") as file:
        for number in range(count):
            fields = {"jpg": rng.bytes(SIZE), "cls": b"%d" % (number % 10)}
            for name, data in fields.items():
                member = tarfile.TarInfo(f"{number:06d}.{name}")
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))


def _measure(load: Callable[[str], Iterator[Any]], settings: Settings) -> Measurement:
    count = settings.records or SAMPLES
    write = functools.partial(_write, count)
    samples = load(cached_file(f"samples-{count}-{SIZE}.tar", write))
    batches = iter(lambda: list(itertools.islice(samples, BATCH)), [])
    seconds = seconds_per_batch(batches, settings.seconds, clock=time.process_time)
    return Measurement(seconds / BATCH * 1e6)


def _shuffled(path: str) -> Iterator[Any]:
    import gristmill as grain

    source = grain.sources.TarDataSource(path)
    return iter(
        grain.MapDataset.source(source).shuffle(SEED).repeat().to_iter_dataset()
    )


def _in_order(path: str) -> Iterator[Any]:
    import gristmill as grain

    source = grain.sources.TarDataSource(path)
    return iter(grain.MapDataset.source(source).repeat().to_iter_dataset())


def _webdataset(path: str) -> Iterator[Any]:
    import webdataset as wds

    return iter(wds.WebDataset(path, shardshuffle=False).repeat())


QUESTION = Question(
    name="tar",
    text="samples of 10 kB of a tar file, shuffled, to dicts",
    unit="us of processor time/sample",
    contestants={
        "gristmill": functools.partial(_measure, _shuffled),
        "in order": functools.partial(_measure, _in_order),
        "webdataset": functools.partial(_measure, _webdataset),
    },
    targets=(AtLeast(4, ("webdataset",)),),
)

if __name__ == "__main__":
    main(QUESTION)
