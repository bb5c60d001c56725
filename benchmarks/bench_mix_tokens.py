"""Measures the time per element of a mixture whose weights are shares of tokens.

Prints ns per element; lower is better.  The mixture of bench_dataset_mix.py: "elements"
are mixed by numbers of elements, "tokens" by tokens of known, log-normal lengths, and
"ramp" by tokens with weights that change linearly.  Grain mixes by elements only.

    python benchmarks/bench_mix_tokens.py
"""

import functools
from typing import Any

import numpy as np

import peers
from dataset_question import measure_chain
from harness import AtLeast, Question, main
from workloads import BATCH, ROWS, rows

SOURCES = 8
WEIGHTS = [0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05]
# The ramp does not end during the measurement.
RAMP_TOKENS = 10**10


def _lengths() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [
        generator.lognormal(6, 1, ROWS // SOURCES).astype(np.int32) + 1
        for _ in range(SOURCES)
    ]


def _mixture(how: str, library: Any) -> Any:
    parts = [
        library.MapDataset.source(part).shuffle(seed).repeat()
        for seed, part in enumerate(np.split(rows(), SOURCES))
    ]
    weights: Any = WEIGHTS
    arguments: dict[str, Any] = {}
    if how != "elements":
        arguments = {"unit": "tokens", "lengths": _lengths()}
    if how == "ramp":
        weights = library.MixSchedule(
            [(0, WEIGHTS), (RAMP_TOKENS, WEIGHTS[::-1])], unit="tokens", ramp=True
        )
    mixed = library.MapDataset.mix(parts, weights, **arguments)
    return mixed.batch(BATCH).to_iter_dataset(library.ReadOptions(0, 0))


QUESTION = Question(
    name="mix_tokens",
    text="8 shuffled sources of rows mixed by tokens, batch 256, no threads",
    unit="ns/element",
    contestants={
        f"{library} {how}": functools.partial(
            measure_chain, load, functools.partial(_mixture, how), how
        )
        for library, load, hows in (
            ("gristmill", peers.import_gristmill, ("tokens", "ramp", "elements")),
            ("grain", peers.import_grain, ("elements",)),
        )
        for how in hows
    },
    targets=(
        AtLeast(10, ("grain elements",), ours="gristmill tokens"),
        AtLeast(10, ("grain elements",), ours="gristmill ramp"),
    ),
)

if __name__ == "__main__":
    main(QUESTION)
