"""The latest measurements of each question, stored in one JSON file.

Each entry has its date, machine, versions and command, because measuring some questions
again does not change the others.
"""

import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import time
from collections.abc import Iterable

from harness import Outcome
from questions import QUESTIONS, question_of

PATH = pathlib.Path(__file__).with_name("results.json")
PACKAGES = (
    "gristmill",
    "grain",
    "torch",
    "torchdata",
    "spdl",
    "numpy",
    "array-record",
    "tensorflow-cpu",
    "torchvision",
    "nvidia-dali-cuda120",
    "pyarrow",
    "datasets",
    "webdataset",
    "ray",
    "tokenizers",
    "gigatoken",
)


def _processor() -> str:
    with open("/proc/cpuinfo") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return "an unknown processor"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    here = pathlib.Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True)
    return done.stdout.strip() or "no repository"


def about_now(command: str) -> dict[str, str]:
    """Returns the facts that figures measured now depend on."""
    return {
        "command": command,
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores of {_processor()}, "
        f"Linux {platform.release()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "date": time.strftime("%Y-%m-%d"),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def load(path: pathlib.Path = PATH) -> dict[str, Outcome]:
    """Returns the outcomes by name, in the order of `QUESTIONS`."""
    entries = json.loads(path.read_text()) if path.exists() else {}
    return {
        name: Outcome(question=question_of(name), **entries[name])
        for name in QUESTIONS
        if name in entries
    }


def merge(outcomes: Iterable[Outcome], path: pathlib.Path = PATH) -> None:
    """Puts outcomes into the file, replacing those of the same questions."""
    known = load(path) | {outcome.question.name: outcome for outcome in outcomes}
    entries = {name: _entry(known[name]) for name in QUESTIONS if name in known}
    unfinished = path.with_suffix(".half")
    lines = [f'"{name}": {json.dumps(entry)}' for name, entry in entries.items()]
    unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    os.replace(unfinished, path)


def _entry(outcome: Outcome) -> dict[str, object]:
    return {
        "runs": {name: list(map(_round, v)) for name, v in outcome.runs.items()},
        "failures": outcome.failures,
        "disagreements": outcome.disagreements,
        "series": {
            name: [(_round(x), _round(y)) for x, y in points]
            for name, points in outcome.series.items()
        },
        "about": outcome.about,
    }


def _round(value: float) -> float:
    """Returns a figure with five significant digits."""
    return float(f"{value:.5g}")
