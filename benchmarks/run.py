"""Asks every question and prints the whole table.

    python benchmarks/run.py [--only NAME ...] [--repeats 3] [--quick]

Each contestant of each question is measured ``--repeats`` times, in turn with the
others and in a fresh process every time; medians are compared with the targets.
Writes ``benchmarks/results.json`` (every run) and ``benchmarks/results.md``, or to
``--output``; ``--readme`` also puts the tables into ``benchmarks/README.md``, the
targets into the project's ``README.md``, and what peers were beaten by into
``docs/peers``.  Exits with 1 when a target is missed.
The peers are in ``pip install 'gristmill[bench]'``.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
import time

import peer_pages
from harness import Outcome, Settings, ask, table

QUESTIONS = (
    "getitem",
    "array",
    "map",
    "map_workers",
    "images",
    "first_batch",
    "indices",
    "random_map",
    "resume",
    "memory",
    "receive",
    "to_device",
    "import",
    "records_tokens",
    "records_noise",
    "records_tokens_workers",
    "records_noise_workers",
    "records_large",
    "record_reader",
    "record_groups",
    "record_open",
    "parquet",
    "parquet_columns",
    "parquet_columns_workers",
    "parquet_global",
    "columns",
    "hugging_face",
    "record_open_memory",
    "many_shards",
    "tf_record",
    "tf_index",
    "tar",
    "parse_example",
    "dataset_map",
    "dataset_default",
    "dataset_mix",
    "dataset_step",
    "dataset_window_shuffle",
    "dataset_interleave",
    "watching",
    "pack_first_fit",
    "pack_best_fit",
    "pack_concat_split",
    "torch_tensor_dataset",
    "torch_single",
    "torch_small",
    "torch_dict",
    "torch_ints",
    "torch_images",
    "torch_slow",
    "torch_first_batch",
    "torch_epochs",
    "torch_boundary",
    "far_shuffled",
    "far_windows",
    "far_cached",
    "text_pack",
    "text_throughput",
    "text_first_batch",
    "jpeg",
    "jpeg_normalized",
    "jpeg_threads",
    "ray_records",
    "ray_images",
    "ray_jpeg",
    "ray_text",
    "ray_node",
)
RESULTS = "## Results\n"
TABLE_BEGIN, TABLE_END = "<!-- table: begin -->\n", "<!-- table: end -->"
PACKAGES = (
    "gristmill",
    "grain",
    "torch",
    "spdl",
    "numpy",
    "array-record",
    "tensorflow-cpu",
    "torchvision",
    "nvidia-dali-cuda120",
)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def machine() -> dict[str, str]:
    """Returns what the figures depend on: processor, system, versions, load."""
    model = "unknown processor"
    with open("/proc/cpuinfo") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("model name"):
                model = line.split(":")[1].strip()
                break
    return {
        "machine": f"{os.cpu_count()} cores of {model}, Linux {platform.release()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "date": time.strftime("%Y-%m-%d"),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def summary(outcomes: list[Outcome]) -> str:
    """Returns the table of targets as markdown, one line per target."""
    lines = ["| question | target | found | verdict |", "|---|---|---|---|"]
    for outcome in outcomes:
        for verdict in outcome.verdicts():
            lines.append(f"| {outcome.question.name} | {' | '.join(verdict)} |")
    return "\n".join(lines) + "\n"


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {
        "question": outcome.question.text,
        "unit": outcome.question.unit,
        "runs": outcome.runs,
        "medians": outcome.medians,
        "targets": outcome.verdicts(),
        "failures": outcome.failures,
        "disagreements": outcome.disagreements,
    }


def put_into_readmes(here: pathlib.Path, targets: str, everything: str) -> None:
    """Replaces what the two READMEs say was measured."""
    own = here / "README.md"
    own.write_text(f"{own.read_text().partition(RESULTS)[0]}{RESULTS}\n{everything}")
    project = here.parent / "README.md"
    before, _, rest = project.read_text().partition(TABLE_BEGIN)
    _, _, after = rest.partition(TABLE_END)
    project.write_text(f"{before}{TABLE_BEGIN}{targets}{TABLE_END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="shorter timed parts")
    parser.add_argument("--records", type=int, help="list length of `memory`")
    parser.add_argument("--peers-only", action="store_true", help="skip gristmill")
    here = pathlib.Path(__file__).parent
    parser.add_argument("--output", type=pathlib.Path, default=here / "results.json")
    parser.add_argument("--readme", action="store_true", help="update the README")
    options = parser.parse_args()
    settings = Settings(options.quick, options.records)

    about = machine()
    header = "\n".join(f"- {key}: {value}" for key, value in about.items())
    command = f"    python benchmarks/run.py {' '.join(sys.argv[1:])}".rstrip()
    print(f"{command}\n\n{header}\n")
    outcomes = []
    for name in options.only:
        question = importlib.import_module(f"bench_{name}").QUESTION
        skip = "gristmill" if options.peers_only else None
        outcomes.append(ask(question, settings, options.repeats, skip))
        print(table(outcomes[-1]), flush=True)
    print(summary(outcomes))

    results = {outcome.question.name: _as_json(outcome) for outcome in outcomes}
    options.output.write_text(json.dumps({"about": about, **results}, indent=1))
    parts = [command, "", header, "", summary(outcomes), *map(table, outcomes)]
    text = "\n".join(parts)
    options.output.with_suffix(".md").write_text(text)
    if options.readme:
        put_into_readmes(here, summary(outcomes), text)
        peer_pages.main()
    failed = any(v[2] != "pass" for o in outcomes for v in o.verdicts())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
