"""Measures packing of token documents into rows of 2,048 tokens.

Prints us per row; lower is better.  The documents are views of one array of int32;
their lengths are log-normal, 400 on average, and no more than a row.  "gristmill" is
MapDataset.pack, best fit in windows of 262,144 documents; the others pack the stream
of documents by first fit into 30 rows, or concatenate it and cut it.  Planned
packing and first fit cut no document.

    python benchmarks/bench_planned_pack.py
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import peers
from harness import AtLeast, Measurement, Question, Settings, main, seconds_per_batch
from workloads import SEED

LENGTH = 2048
ROWS = 64  # Per batch.
DOCUMENTS = 100_000


def _documents() -> list[np.ndarray]:
    """Return the documents."""
    rng = np.random.default_rng(SEED)
    lengths = np.clip(rng.lognormal(5.5, 1, DOCUMENTS).astype(int), 1, LENGTH)
    tokens = rng.integers(1, 50_000, lengths.sum(), np.int32)
    return np.split(tokens, np.cumsum(lengths)[:-1])


def _feature(tokens: np.ndarray) -> dict[str, np.ndarray]:
    return {"tokens": tokens}


def _planned(grain: Any) -> Iterator[Any]:
    documents = _documents()
    lengths = [len(each) for each in documents]
    rows = grain.MapDataset.source(documents).pack(
        LENGTH, lengths, seed=SEED, num_epochs=1000
    )
    return iter(rows.batch(ROWS).to_iter_dataset())


def _streamed(dataset: str, options: dict[str, Any], grain: Any) -> Iterator[Any]:
    source = grain.MapDataset.source(_documents()).shuffle(seed=SEED)
    parent = source.repeat(1000).map(_feature).to_iter_dataset()
    packed = getattr(grain.experimental, dataset)(
        parent, length_struct={"tokens": LENGTH}, **options
    )
    return iter(packed.batch(ROWS))


def _measure(library: Any, load: Any, settings: Settings) -> Measurement:
    batches = load(library())
    seconds = seconds_per_batch(batches, settings.seconds, warm=2, at_least=3)
    return Measurement(seconds / ROWS * 1e6, {})


_FIRST_FIT = functools.partial(
    _streamed, "FirstFitPackIterDataset", {"num_packing_bins": 30}
)
_CONCAT = functools.partial(_streamed, "ConcatThenSplitIterDataset", {})

QUESTION = Question(
    name="planned_pack",
    text=f"packing documents of 400 tokens into rows of {LENGTH}, batch {ROWS}",
    unit="us/row",
    contestants={
        "gristmill": functools.partial(_measure, peers.import_gristmill, _planned),
        "gristmill first fit": functools.partial(
            _measure, peers.import_gristmill, _FIRST_FIT
        ),
        "gristmill concat": functools.partial(
            _measure, peers.import_gristmill, _CONCAT
        ),
        "Grain first fit": functools.partial(_measure, peers.import_grain, _FIRST_FIT),
        "Grain concat": functools.partial(_measure, peers.import_grain, _CONCAT),
    },
    targets=(
        AtLeast(5, ("Grain first fit", "Grain concat")),
        AtLeast(1, ("gristmill first fit",)),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
