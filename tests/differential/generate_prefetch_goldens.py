"""Writes prefetch_goldens.json.gz: the output of real Grain's mp_prefetch.

    PYTHONPATH=tests python -m differential.generate_prefetch_goldens

Needs grain. Takes about 10 minutes on 2 cores, mostly to start Grain's worker
processes. The file records the versions that made it.
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
# Grain slices a dataset twice if it occurs twice in a chain, and fails if there are
# fewer datasets to interleave than workers.
LEFT_OUT = {"zip", "interleave"}
# Grain's datasets of these kinds keep the parents' lengths from before sources were
# sliced: elements repeat, or "Cannot batch 0 values".
MEASURED = {"batch", "slice", "repeat", "concatenate", "mix", "select", "flat_map"}


def describe_seed(seed: int) -> dict[str, Any]:
    """Return the chain made from a seed, and how it is prefetched."""
    choices = Seeded(seed)
    workers, sequential = choices.integer(1, 3), choices.integer(0, 1) == 1
    chain = describe(choices)
    return {
        "workers": workers,
        "sequential": sequential and _operations(chain).isdisjoint(MEASURED),
        "chain": chain,
    }


def _operations(chain: Chain) -> set[str]:
    parents = chain.get("parents") or [
        chain[name] for name in ["parent"] if name in chain
    ]
    return {chain["op"]}.union(*map(_operations, parents))


def prefetched(lib: Any, described: Chain, **more: Any) -> Any:
    """Build the described dataset with one library."""
    options = lib.multiprocessing.MultiprocessingOptions(described["workers"])
    return build(lib, described["chain"]).mp_prefetch(
        options, sequential_slice=described["sequential"], **more
    )


def run(iterator: Any, count: int = TAKEN) -> dict[str, Any]:
    """Return element digests, all states around elements, and how the run ended."""
    elements: list[str] = []
    states = [iterator.get_state()]
    end = "more"
    while len(elements) < count:
        try:
            elements.append(digest(next(iterator), key_order=False))
        except StopIteration:
            end = "end"
            states.append(iterator.get_state())
            break
        except Exception as error:
            end = (
                "ValueError" if isinstance(error, ValueError) else type(error).__name__
            )
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
        if not _operations(described["chain"]).isdisjoint(LEFT_OUT):
            continue
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
    # Without a time stamp, the same goldens give the same file.
    arguments.output.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
