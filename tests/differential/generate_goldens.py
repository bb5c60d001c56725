"""Writes goldens.json.gz: the output of real Grain for a fixed list of pipelines.

    PYTHONPATH=tests python -m differential.generate_goldens

Needs grain and jax. Takes about 15 minutes on 2 cores, mostly to start Grain's worker
processes. The file records the versions that made it.
"""

import argparse
import gzip
import importlib.metadata
import json
import logging
import pathlib
import platform
from typing import Any

from differential.descriptions import Seeded, describe, looks_ahead
from differential.pipelines import (
    THEIRS,
    Description,
    Trace,
    build,
    digest,
    ready,
    rest,
    trace,
)

PATH = pathlib.Path(__file__).with_name("goldens.json.gz")

# Seeds of the pipelines without workers, and with workers.
ALONE = range(400)
WORKING = range(1000, 1150)

# With workers a restore takes seconds, so only every fifth seed restores in Grain.
RESTORED_EVERY = 5


def describe_seed(seed: int) -> Description:
    """Return the description made from ``seed``."""
    return describe(Seeded(seed), [0] if seed in ALONE else [1, 2, 2, 3])


def _saved_points(seed: int, run: Trace) -> list[int]:
    """Choose the states to store in full: the first, the last and two others."""
    last = len(run.elements)
    choices = Seeded(-1 - seed)
    return sorted({0, last, choices.integer(0, last), choices.integer(0, last)})


def _rests(
    seed: int, description: Description, run: Trace, points: list[int]
) -> dict[str, list[str] | None]:
    """Restore in Grain at ``points``; None stands for an unchanged rest."""
    if seed in WORKING:
        chosen = looks_ahead(description) or seed % RESTORED_EVERY == 0
        points = points[1:2] if chosen else []
    rests: dict[str, list[str] | None] = {}
    for point in points:
        loader = build(description, THEIRS)
        found = rest(loader, description, run.states[point], point)
        rests[str(point)] = None if found == run.elements[point:] else found
    return rests


def golden(seed: int) -> dict[str, Any]:
    """Run one pipeline in Grain and return its entry of the file."""
    description = describe_seed(seed)
    run = trace(iter(build(description, THEIRS)), description)
    end = run.states.pop("end", None)
    points = _saved_points(seed, run)
    return {
        "seed": seed,
        "description": description,
        "elements": run.elements,
        "states": [digest(state) for state in run.states.values()],
        "saved": {str(point): run.states[point].decode() for point in points},
        "end": None if end is None else end.decode(),
        "rests": _rests(seed, description, run, points),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=PATH)
    parser.add_argument("--every", type=int, default=1, help="run 1 seed in EVERY")
    arguments = parser.parse_args()
    ready(THEIRS)
    # Grain logs an error for every use of a legacy operation.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    entries = []
    for seed in [*ALONE, *WORKING][:: arguments.every]:
        entries.append(golden(seed))
        print(f"{seed}: {len(entries[-1]['elements'])} elements", flush=True)
    versions = {
        name: importlib.metadata.version(name) for name in ("grain", "jax", "numpy")
    }
    versions["python"] = platform.python_version()
    text = json.dumps({"versions": versions, "pipelines": entries})
    # Without a time stamp, the same goldens give the same file.
    arguments.output.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
