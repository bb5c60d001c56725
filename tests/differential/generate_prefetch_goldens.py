"""Writes prefetch_goldens.json.gz: what real Grain's mp_prefetch gives.

    PYTHONPATH=tests python -m differential.generate_prefetch_goldens

Needs grain.  Takes some 10 minutes on 2 cores, nearly all of it the starts of Grain's
worker processes.  The file names the versions that made it.
"""

import argparse
import gzip
import importlib.metadata
import json
import pathlib
import platform
from typing import Any

from differential.chains import Chain, build, describe
from differential.descriptions import Seeded
from differential.pipelines import digest

PATH = pathlib.Path(__file__).with_name("prefetch_goldens.json.gz")
SEEDS = range(90)
TAKEN = 40


def describe_seed(seed: int) -> dict[str, Any]:
    """The chain that a seed stands for, and how it is prefetched."""
    choices = Seeded(seed)
    return {
        "workers": choices.integer(1, 3),
        "sequential": choices.integer(0, 4) == 4,
        "chain": describe(choices),
    }


def prefetched(lib: Any, described: Chain, **more: Any) -> Any:
    """The dataset of a description, of one library."""
    options = lib.multiprocessing.MultiprocessingOptions(described["workers"])
    return build(lib, described["chain"]).mp_prefetch(
        options, sequential_slice=described["sequential"], **more
    )


def run(iterator: Any, count: int = TAKEN) -> dict[str, Any]:
    """Elements as digests, the state before each and after the last, and the end."""
    elements: list[str] = []
    states = [iterator.get_state()]
    end = "more"
    while len(elements) < count:
        try:
            elements.append(digest(next(iterator)))
        except StopIteration:
            end = "end"
            states.append(iterator.get_state())
            break
        except Exception as error:
            end = type(error).__name__
            break
        states.append(iterator.get_state())
    states = [json.loads(json.dumps(state)) for state in states]
    return {"elements": elements, "states": states, "end": end}


def main() -> None:
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    import grain

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=PATH)
    arguments = parser.parse_args()
    entries = []
    for seed in SEEDS:
        described = describe_seed(seed)
        try:
            dataset = prefetched(grain, described)
        except Exception as error:
            print(f"{seed}: {error!r:.80}", flush=True)
            continue
        iterator = iter(dataset)
        entries.append({"seed": seed, **described, **run(iterator)})
        iterator.close()
        print(f"{seed}: {len(entries[-1]['elements'])} elements", flush=True)
    versions = {name: importlib.metadata.version(name) for name in ("grain", "numpy")}
    versions["python"] = platform.python_version()
    text = json.dumps({"versions": versions, "chains": entries})
    # No time stamp in the header: the same goldens make the same file.
    arguments.output.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
