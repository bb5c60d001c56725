"""Counts the instructions of hot paths and compares them with their budgets.

    python benchmarks/costs.py [PATH ...]

runs the paths of cost_paths.py under callgrind and exits with 1 if one costs more than
3 % above its budget in costs.json. Needs valgrind and a C compiler. The count is for
one item: the difference of two runs of different lengths, without work done only once.
Counts depend on the versions of Python, NumPy, torch and the compiler, and slightly on
the processor's maker. costs.json names those of the budgets; if they differ here, 10 %
are allowed.

    python benchmarks/costs.py --update [--bought TEXT] [PATH ...]

sets the budgets to the counts. Raising a budget needs a text with the reason, and
costs.json stores it with the budget.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version

HERE = pathlib.Path(__file__).parent
BUDGETS = HERE / "costs.json"
# Share of its budget by which a path may exceed it.
TOLERANCE = 0.03
# The same, if the versions here differ from those of the budgets.
TOLERANCE_ELSEWHERE = 0.1
TIMEOUT_S = 600
# These make counts equal in each run, and on processors of different makers. glibc,
# NumPy and torch choose their loops by the processor's features. The place of a new
# block of memory depends on all blocks freed before, unless it comes from a cache
# without a limit.
FIXED = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM"
    ",-AVX_Fast_Unaligned_Load:glibc.malloc.tcache_count=65535",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
    "ATEN_CPU_CAPABILITY": "default",
}


@dataclasses.dataclass(frozen=True)
class Budget:
    """The most instructions that a path may take.

    Attributes:
        instructions: The number for one item.
        bought: The reason for each raise of the budget.
    """

    instructions: int
    bought: tuple[str, ...] = ()


def read(file: pathlib.Path = BUDGETS) -> dict[str, Budget]:
    """Return the budgets in a file, by path."""
    entries = json.loads(file.read_text())["budgets"]
    return {
        name: Budget(entry["instructions"], tuple(entry.get("bought", ())))
        for name, entry in entries.items()
    }


def write(budgets: dict[str, Budget], file: pathlib.Path = BUDGETS) -> None:
    """Write budgets, and the versions that they were counted with."""
    entries = {
        name: {"instructions": budget.instructions}
        | ({"bought": list(budget.bought)} if budget.bought else {})
        for name, budget in sorted(budgets.items())
    }
    text = json.dumps({"counted_with": versions(), "budgets": entries}, indent=2)
    file.write_text(text + "\n")


def versions() -> dict[str, str]:
    """Return the versions, and the maker of the processor, that counts depend on."""
    compiler = subprocess.run(
        [_compiler(), "-dumpfullversion"], capture_output=True, text=True, check=True
    )
    packages = {name: version(name) for name in ("numpy", "torch")}
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor_maker(),
        "compiler": compiler.stdout.strip(),
        **packages,
    }


def over_budget(
    counts: dict[str, int], budgets: dict[str, Budget], tolerance: float = TOLERANCE
) -> list[str]:
    """Return a line for each path that costs too much or has no budget."""
    lines = []
    for name, count in counts.items():
        if name not in budgets:
            lines.append(f"{name} has no budget: run with --update {name}")
            continue
        budget = budgets[name].instructions
        if count > budget * (1 + tolerance):
            lines.append(
                f"{name} takes {count:,} instructions, {count / budget - 1:+.1%} of its"
                f" budget of {budget:,}"
            )
    return lines


def update_budgets(
    counts: dict[str, int], budgets: dict[str, Budget], bought: str | None
) -> dict[str, Budget]:
    """Return the budgets, updated with the counts.

    Raises:
        ValueError: A budget would be raised, and no reason is given.
    """
    new_budgets = dict(budgets)
    for name, count in counts.items():
        before = budgets.get(name)
        reasons = () if before is None else before.bought
        if before is not None and over_budget({name: count}, {name: before}):
            if not bought:
                raise ValueError(
                    f"{name} takes {count:,} instructions, its budget is"
                    f" {before.instructions:,}. To raise it, pass the reason with"
                    " --bought."
                )
            raised = f"{before.instructions:,} to {count:,}: {bought}"
            reasons = (*reasons, raised)
        new_budgets[name] = Budget(count, reasons)
    return new_budgets


def count_instructions(names: list[str]) -> dict[str, int]:
    """Return the instructions that an item of each path takes.

    Raises:
        RuntimeError: A path failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = _compile_requests(pathlib.Path(folder))
        # torch's paths run in their own process, because importing torch takes as long
        # as all other paths.
        of_torch = [name for name in names if name.startswith("torch")]
        others = [name for name in names if not name.startswith("torch")]
        parts = [part for part in (of_torch, others) if part]
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            found = list(pool.map(lambda part: _run(library, part), parts))
    counts = {name: count for part in found for name, count in part.items()}
    return {name: counts[name] for name in names}


def _run(library: pathlib.Path, names: list[str]) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind",
            "-q",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={folder}/out",
            sys.executable,
            str(HERE / "cost_paths.py"),
            str(library),
            *names,
        ]
        done = subprocess.run(
            command,
            env={**os.environ, **FIXED},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        totals = _totals(pathlib.Path(folder))
        missing = [name for name in names if len(totals.get(name, {})) != 2]
        if done.returncode or missing:
            raise RuntimeError(
                f"exit code {done.returncode}, no counts of {missing}:\n{done.stderr}"
            )
    counts = {}
    for name in names:
        (few_items, few_count), (many_items, many_count) = sorted(totals[name].items())
        counts[name] = round((many_count - few_count) / (many_items - few_items))
    return counts


def _totals(folder: pathlib.Path) -> dict[str, dict[int, int]]:
    """Return the instructions of each run, by path and number of items."""
    totals: dict[str, dict[int, int]] = {}
    for file in folder.iterdir():
        text = file.read_text()
        run = re.search(r"Client Request: (\w+):(\d+)", text)
        total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
        if run and total:
            totals.setdefault(run[1], {})[int(run[2])] = int(total[1])
    return totals


def _processor_maker() -> str:
    text = pathlib.Path("/proc/cpuinfo").read_text()
    match = re.search(r"vendor_id\s*:\s*(\S+)", text)
    return match[1] if match else "unknown"


def _compiler() -> str:
    return os.environ.get("CC", "cc")


def _compile_requests(folder: pathlib.Path) -> pathlib.Path:
    library = folder / "requests.so"
    source = HERE / "callgrind_requests.c"
    subprocess.run([_compiler(), "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="default: all")
    parser.add_argument("--update", action="store_true", help="keep the counts")
    parser.add_argument("--bought", help="what raising budgets bought")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("costs.py needs valgrind: apt-get install valgrind")
    from cost_paths import PATHS

    if unknown := set(arguments.paths) - set(PATHS):
        parser.error(f"no such path: {', '.join(sorted(unknown))}")
    if not (arguments.update or BUDGETS.exists()):
        parser.error(f"there is no {BUDGETS}: make it with --update")
    budgets = read() if BUDGETS.exists() else {}
    counts = count_instructions(arguments.paths or list(PATHS))
    for name, count in counts.items():
        budget = budgets.get(name)
        change = f"{count / budget.instructions - 1:+.1%}" if budget else "new"
        print(f"{name:24} {count:12,} {change:>8}")
    if arguments.update:
        write(update_budgets(counts, budgets, arguments.bought))
        return 0
    budget_versions = json.loads(BUDGETS.read_text())["counted_with"]
    tolerance = TOLERANCE
    if budget_versions != (here := versions()):
        print(f"budgets were counted with {budget_versions}, these with {here}")
        tolerance = TOLERANCE_ELSEWHERE
    lines = over_budget(counts, budgets, tolerance)
    for line in lines:
        print(line, file=sys.stderr)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
