"""Measures packing sequences into rows of 128 tokens.

A ``bench_pack_<how>.py`` chooses the dataset class.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import peers
from harness import GRAIN, AtLeast, Measurement, Question, Settings, seconds_per_batch
from workloads import SEED, answer

LENGTH = 128
ROWS = 512  # Per batch.
SEQUENCES = 20_000
CHECKED_SEQUENCES = 3000


def sequences(count: int) -> list[np.ndarray]:
    """Returns arrays of tokens whose lengths are log-normal, 41 on average."""
    rng = np.random.default_rng(SEED)
    lengths = np.clip(rng.lognormal(3.4, 0.8, count).astype(int), 1, LENGTH)
    return [rng.integers(1, 50_000, length) for length in lengths]


def _feature(tokens: np.ndarray) -> dict[str, np.ndarray]:
    return {"tokens": tokens}


def _batches(
    grain: Any,
    read: dict[str, int] | None,
    dataset: str,
    options: dict[str, Any],
    count: int,
    epochs: int | None,
) -> Iterator[Any]:
    source = grain.MapDataset.source(sequences(count)).shuffle(seed=SEED)
    features = source.repeat(epochs).map(_feature)
    parent = features.to_iter_dataset(
        None if read is None else grain.ReadOptions(**read)
    )
    packed = getattr(grain.experimental, dataset)(
        parent, length_struct={"tokens": LENGTH}, **options
    )
    return iter(packed.batch(ROWS))


def _measure(
    library: Any,
    read: dict[str, int] | None,
    dataset: str,
    options: dict[str, Any],
    settings: Settings,
) -> Measurement:
    grain = library()
    checked = answer(_batches(grain, read, dataset, options, CHECKED_SEQUENCES, 2))
    batches = _batches(grain, read, dataset, options, SEQUENCES, None)
    seconds = seconds_per_batch(batches, settings.seconds, warm=2, at_least=3)
    return Measurement(
        seconds / ROWS * 1e6, {"records": checked.records, "stream": checked.stream}
    )


def question(name: str, text: str, dataset: str, **options: Any) -> Question:
    """Returns the question of one dataset class with these arguments."""
    no_threads = {"num_threads": 0, "prefetch_buffer_size": 0}
    contestants = {
        "gristmill": (peers.import_gristmill, None),
        GRAIN[0]: (peers.import_grain, None),
        GRAIN[1]: (peers.import_grain, no_threads),
    }
    return Question(
        name=name,
        text=f"{text}, rows of {LENGTH} tokens, batch {ROWS}",
        unit="us/row",
        contestants={
            contestant: functools.partial(_measure, library, read, dataset, options)
            for contestant, (library, read) in contestants.items()
        },
        targets=(AtLeast(20, GRAIN),),
    )
