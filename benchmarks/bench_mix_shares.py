"""Measures how far the shares of tokens of a mixture are from its weights.

Prints the largest deviation of a source after 1,000 batches of 256 documents, in % of
its share; lower is better.  Eight sources with log-normal lengths, whose means differ
by up to a factor of 16.  "map" and "iter" mix MapDatasets and IterDatasets by tokens.
Grain and torchdata mix by elements; torchdata draws the source of each.  "by mean" is
Grain with weights that are divided by the mean lengths.

    python benchmarks/bench_mix_shares.py
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import peers
from harness import AtMost, Measurement, Question, Settings, main

SOURCES = 8
WEIGHTS = [0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05]
DOCUMENTS = 50_000  # Of each source.
DELIVERED = 256_000

Pair = tuple[int, int]


def _lengths() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    means = np.linspace(4, 4 + np.log(16), SOURCES)
    return [random.lognormal(mean, 1, DOCUMENTS).astype(int) + 1 for mean in means]


def _documents() -> list[list[Pair]]:
    """Returns the documents of each source: the source's number, and the length."""
    return [
        [(number, length) for length in lengths.tolist()]
        for number, lengths in enumerate(_lengths())
    ]


def _map(library: Any, weights: Any, **options: Any) -> Iterator[Pair]:
    parts = [library.MapDataset.source(each).repeat() for each in _documents()]
    mixed = library.MapDataset.mix(parts, weights, **options)
    return iter(mixed.to_iter_dataset(library.ReadOptions(0, 0)))


def _gristmill_map() -> Iterator[Pair]:
    library = peers.import_gristmill()
    return _map(library, WEIGHTS, unit="tokens", lengths=_lengths())


def _gristmill_iter() -> Iterator[Pair]:
    library = peers.import_gristmill()
    parts = [
        library.MapDataset.source(each).repeat().to_iter_dataset()
        for each in _documents()
    ]
    mixed = library.IterDataset.mix(
        parts, WEIGHTS, unit="tokens", tokens=lambda pair: pair[1]
    )
    return iter(mixed)


def _grain() -> Iterator[Pair]:
    return _map(peers.import_grain(), WEIGHTS)


def _grain_by_mean() -> Iterator[Pair]:
    means = [lengths.mean() for lengths in _lengths()]
    return _map(peers.import_grain(), np.divide(WEIGHTS, means).tolist())


def _torchdata() -> Iterator[Pair]:
    from torchdata import nodes

    parts = {f"{i}": nodes.IterableWrapper(e) for i, e in enumerate(_documents())}
    weights = dict(zip(parts, WEIGHTS, strict=True))
    sampler = nodes.MultiNodeWeightedSampler(
        parts, weights, nodes.StopCriteria.CYCLE_FOREVER, rank=0, world_size=1
    )
    return iter(nodes.Loader(sampler))


def _measure(mixture: Callable[[], Iterator[Pair]], settings: Settings) -> Measurement:
    tokens = np.zeros(SOURCES, np.int64)
    for number, length in itertools.islice(mixture(), DELIVERED):
        tokens[number] += length
    shares = tokens / tokens.sum()
    return Measurement(float(np.abs(shares / WEIGHTS - 1).max()) * 100)


QUESTION = Question(
    name="mix_shares",
    text="largest deviation of a source's share of tokens after 1,000 batches",
    unit="% of the share",
    contestants={
        "gristmill map": functools.partial(_measure, _gristmill_map),
        "gristmill iter": functools.partial(_measure, _gristmill_iter),
        "grain": functools.partial(_measure, _grain),
        "grain by mean": functools.partial(_measure, _grain_by_mean),
        "torchdata": functools.partial(_measure, _torchdata),
    },
    targets=(AtMost(0.5, ours="gristmill map"), AtMost(0.5, ours="gristmill iter")),
)

if __name__ == "__main__":
    main(QUESTION)
