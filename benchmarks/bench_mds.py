"""Measures reading samples of MosaicML Streaming's shards by number.

Prints microseconds of CPU time per sample; lower is better.  100,000 samples with an
int, a text and an array of 512 uint16, in uncompressed shards of 8 MB in the page
cache, in the order of the files or in random order.  "streaming" is the LocalDataset of
mosaicml-streaming; "in blocks" reads 64 samples in a call.

    python benchmarks/bench_mds.py
"""

import functools
import hashlib
import importlib.util
import os
import pathlib
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from harness import AtLeast, Measurement, Question, Settings, main
from record_files import FOLDER

SAMPLES = 100_000
SHARD_BYTES = 8 << 20
COLUMNS = {"id": "int", "text": "str", "tokens": "ndarray:uint16:512"}
BLOCK = 64
CHECKED = 100

Read = Callable[[Any, list[int]], list[Any]]


def _streaming() -> Any:
    """Returns streaming.base, without the package's import of torchvision."""
    spec = importlib.util.find_spec("streaming")
    if spec is None:
        raise ModuleNotFoundError("no package streaming", name="streaming")
    sys.modules["streaming"] = importlib.util.module_from_spec(spec)
    return importlib.import_module("streaming.base")


def _folder() -> str:
    """Returns the data set, written by the first process that needs it."""
    folder = FOLDER / f"mds-{SAMPLES}"
    if not folder.exists():
        unfinished = pathlib.Path(f"{folder}.{os.getpid()}")
        _write(unfinished)
        try:
            os.replace(unfinished, folder)
        except OSError:  # Another process was faster.
            shutil.rmtree(unfinished)
    return str(folder)


def _write(folder: pathlib.Path) -> None:
    random = np.random.default_rng(0)
    with _streaming().MDSWriter(
        out=str(folder), columns=COLUMNS, size_limit=SHARD_BYTES
    ) as writer:
        for number in range(SAMPLES):
            tokens = random.integers(0, 50_000, 512, np.uint16)
            text = f"document {number} " * (number % 9)
            writer.write({"id": number, "text": text, "tokens": tokens})


def _open_gristmill() -> Any:
    from gristmill import sources

    return sources.MDSDataSource(_folder())


def _open_streaming() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _streaming().LocalDataset(_folder())


def _one_by_one(source: Any, indices: list[int]) -> list[Any]:
    return [source[index] for index in indices]


def _in_blocks(source: Any, indices: list[int]) -> list[Any]:
    return list(source.__getitems__(indices))


def _digest(samples: list[Any]) -> str:
    values = [(s["id"], s["text"], s["tokens"].tolist()) for s in samples]
    return hashlib.sha256(repr(values).encode()).hexdigest()


def _measure(
    open_source: Callable[[], Any], read: Read, is_random: bool, settings: Settings
) -> Measurement:
    source = open_source()
    indices = np.arange(SAMPLES)
    if is_random:
        np.random.default_rng(1).shuffle(indices)
    blocks = [block.tolist() for block in np.array_split(indices, SAMPLES // BLOCK)]
    first = [sample for block in blocks[:CHECKED] for sample in read(source, block)]
    answers = {f"random {is_random}": _digest(first)}
    for shard in range(0, SAMPLES, 1000):  # Open all shards.
        source[shard]
    count = at = 0
    until = time.perf_counter() + 2 * settings.seconds
    start = time.process_time()
    while time.perf_counter() < until:
        count += len(read(source, blocks[at % len(blocks)]))
        at += 1
    return Measurement((time.process_time() - start) / count * 1e6, answers)


def _contestants() -> dict[str, Callable[[Settings], Measurement]]:
    kinds: dict[str, tuple[Callable[[], Any], Read]] = {
        "gristmill": (_open_gristmill, _one_by_one),
        "gristmill, in blocks": (_open_gristmill, _in_blocks),
        "streaming": (_open_streaming, _one_by_one),
    }
    return {
        f"{name}, {order}": functools.partial(_measure, *kind, order == "random")
        for name, kind in kinds.items()
        for order in ("in order", "random")
    }


QUESTION = Question(
    name="mds",
    text="samples of MosaicML Streaming's shards by number, in order and random",
    unit="us/sample",
    contestants=_contestants(),
    targets=tuple(
        AtLeast(3, (f"streaming, {order}",), ours=f"gristmill, {order}")
        for order in ("in order", "random")
    ),
)

if __name__ == "__main__":
    main(QUESTION)
