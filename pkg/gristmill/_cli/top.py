"""``gristmill top``: shows what the loaders of a running process do."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import sys
import time
from typing import Any

from gristmill._cli.terminal import STYLE, amount, count, rate, table
from gristmill._convert.problem import Problem
from gristmill._observe import processes
from gristmill._observe.processes import Arena, Usage
from gristmill._observe.shared_words import OtherLayout, Snapshot, Worker

DESCRIPTION = """\
Show the loaders of a running process: what each gives and waits for, and what each of
its workers does.  The process is neither stopped nor asked: it is read what it shares
with its workers.  It must be of the same user, and its loaders must have workers.

Without PID, list the processes that have such loaders.
"""

EPILOG = """\
columns:
  ready        outputs that are computed and wait to be taken
  waits        how often the consumer was found asleep until an output comes
  for          how long a worker has computed what it computes
  CPU          of one core
  memory       of a worker; what processes share counts by its part (PSS)
  outputs/s    what a worker computed

examples:
  gristmill top
  gristmill top 4242
  gristmill top 4242 --once --json | jq '.loaders[0].waiting'
"""
# How often a second it is looked whether the consumer waits.
LOOKS_PER_S = 50
NO_WORKERS = (
    "has no loader with workers now. One without workers computes in the process"
    " itself: ask its iterator for report(), or use py-spy."
)


def add_to(commands: Any) -> None:
    """Add the command to the parser of `gristmill`."""
    purpose = "show what the loaders of a running process do"
    parser = commands.add_parser(
        "top", help=purpose, description=DESCRIPTION, epilog=EPILOG, **STYLE
    )
    add = parser.add_argument
    add("pid", nargs="?", type=_pid, metavar="PID", help="the process that iterates")
    add("--once", action="store_true", help="print it once, and end")
    add("--json", action="store_true", help="print JSON objects, one in a line")
    add(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="S",
        help="seconds between two looks (default: %(default)g)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show one process, or list all."""
    if arguments.pid is None:
        _list(arguments.json)
        return 0
    try:
        _watch(arguments)
    except KeyboardInterrupt:  # The way to end it.
        return 0
    return 0


@dataclasses.dataclass(frozen=True)
class Look:
    """A process at a moment: its loaders, and what it and its workers have used."""

    pid: int
    at_s: float
    loaders: dict[int, tuple[Arena, Snapshot]]
    usage: dict[int, Usage]


def _list(as_json: bool) -> None:
    """Print the processes that have loaders with workers."""
    rows = [("PID", "loaders", "workers", "command")]
    unreadable = []
    for pid in processes.all_pids():
        try:
            found = _loaders(pid)
        except (OSError, Problem):  # It has ended, or is not for us to see.
            continue
        except OtherLayout:
            unreadable.append(pid)
            continue
        if not found or processes.sees_other_numbers(pid):
            continue
        workers = sum(len(snapshot.workers) for _, snapshot in found.values())
        command = processes.command(pid)
        if as_json:
            fields = {"loaders": len(found), "workers": workers, "command": command}
            print(json.dumps({"pid": pid, **fields}))
        rows.append((str(pid), str(len(found)), str(workers), command))
    for pid in unreadable:
        print(f"gristmill: {_other_layout(pid)}", file=sys.stderr)
    if len(rows) == 1 and not unreadable:
        raise Problem("no process that you may look at has a loader with workers.")
    if len(rows) > 1 and not as_json:
        # The command is text: not to the right.
        numbers = table([row[:3] for row in rows]).splitlines()
        lines = [f"{line}  {row[3]}" for line, row in zip(numbers, rows, strict=True)]
        print("\n".join(line[: _columns()] for line in lines))


def _watch(arguments: argparse.Namespace) -> None:
    """Print what a process does until it or the user ends it, or once."""
    pid = arguments.pid
    before = _look(pid)
    if not before.loaders:
        raise Problem(_nothing(pid))
    in_place = sys.stdout.isatty() and not (arguments.json or arguments.once)
    drawn = 0
    while True:
        waited = _sample(before, arguments.interval)
        try:
            after = _look(pid)
        except Problem:
            if arguments.once:
                raise
            if not arguments.json:
                print(f"Process {pid} has ended.")
            return
        if arguments.once and not after.loaders:
            raise Problem(_nothing(pid))
        told = _told(before, after, waited)
        if arguments.json:
            print(json.dumps(told), flush=True)
        elif in_place:
            drawn = _redraw(_as_text(told), drawn)
        else:
            print(_as_text(told), end="\n" if arguments.once else "\n\n", flush=True)
        if arguments.once:
            return
        before = after


def _look(pid: int) -> Look:
    used = processes.usage(pid)
    # Of one that has ended and is not waited for, nothing else may be readable.
    if used is not None and used.state == "Z":
        raise Problem(f"process {pid} has ended.")
    try:
        loaders = _loaders(pid)
    except FileNotFoundError:
        raise Problem(f"there is no process {pid}.") from None
    except PermissionError:
        raise Problem(
            f"process {pid} is another user's, or does not let itself be looked at."
        ) from None
    except OtherLayout as other:
        raise Problem(_other_layout(pid, f" ({other})")) from None
    except ProcessLookupError:
        raise Problem(f"process {pid} has ended.") from None
    if processes.sees_other_numbers(pid):
        raise Problem(
            f"process {pid} runs in a container with process numbers of its own. Run"
            " gristmill top in there."
        )
    pids = {worker.pid for _, each in loaders.values() for worker in each.workers}
    asked = {each: processes.usage(each) for each in {pid, *pids} if each is not None}
    usage = {each: found for each, found in asked.items() if found is not None}
    if pid not in usage:
        raise Problem(f"process {pid} has ended.")
    return Look(pid, time.monotonic(), loaders, usage)


def _loaders(pid: int) -> dict[int, tuple[Arena, Snapshot]]:
    """The loaders of a process that are not closed, by the inode of their memory."""
    found = {}
    for arena in processes.arenas(pid):
        snapshot = arena.snapshot()
        if snapshot is None or snapshot.closed:
            continue
        if snapshot.owner != pid and not processes.sees_other_numbers(pid):
            raise Problem(
                f"process {pid} works for another: try gristmill top {snapshot.owner}"
            )
        found[arena.inode] = arena, snapshot
    return found


def _nothing(pid: int) -> str:
    if processes.has_gristmill(pid):
        return f"process {pid} {NO_WORKERS}"
    return f"process {pid} does not use Gristmill."


def _other_layout(pid: int, what: str = "") -> str:
    return (
        f"process {pid} runs another version of Gristmill{what}. Use the gristmill"
        " command of its environment."
    )


def _sample(look: Look, seconds: float) -> dict[int, tuple[int, int]]:
    """Wait, and count how often each loader's consumer waits, of how many looks."""
    looks = max(1, round(seconds * LOOKS_PER_S))
    asleep = dict.fromkeys(look.loaders, 0)
    for _ in range(looks):
        time.sleep(seconds / looks)
        for inode, (arena, _) in look.loaders.items():
            asleep[inode] += arena.waits()
    return {inode: (number, looks) for inode, number in asleep.items()}


def _told(
    before: Look, after: Look, waited: dict[int, tuple[int, int]]
) -> dict[str, Any]:
    """What is shown of a process, in plain values."""
    return {
        "pid": after.pid,
        "command": processes.command(after.pid),
        "stopped": _stopped(after.usage[after.pid]),
        **_used(after.pid, before, after),
        "loaders": [
            _loader(inode, before, after, waited.get(inode)) for inode in after.loaders
        ],
    }


def _loader(
    inode: int, before: Look, after: Look, waited: tuple[int, int] | None
) -> dict[str, Any]:
    now = after.loaders[inode][1]
    then = before.loaders[inode][1] if inode in before.loaders else None
    passed_s = now.at_s - then.at_s if then else 0.0

    def per_s(new: int, old: int | None) -> float | None:
        return None if old is None or passed_s <= 0 else (new - old) / passed_s

    return {
        "id": inode,
        "face": now.face,
        "streams": now.streams,
        "delivered": now.delivered,
        "delivered_per_s": per_s(now.delivered, then.delivered if then else None),
        "computed": now.computed,
        "computed_per_s": per_s(now.computed, then.computed if then else None),
        "ready": now.ready,
        "waiting": waited[0] / waited[1] if waited else None,
        "samples": waited[1] if waited else 0,
        "memory_bytes": now.arena_bytes,
        "memory_limit": now.memory_limit,
        "workers": [
            {
                **_worker(worker, after),
                **_used(worker.pid, before, after),
                "outputs_per_s": per_s(
                    worker.outputs,
                    then.workers[worker.number].outputs if then else None,
                ),
            }
            for worker in now.workers
        ],
    }


def _worker(worker: Worker, look: Look) -> dict[str, Any]:
    state = worker.state
    usage = None if worker.pid is None else look.usage.get(worker.pid)
    if worker.pid is not None and (usage is None or usage.state == "Z"):
        state = "ended"
    elif usage is not None and _stopped(usage):
        state = "stopped"
    unit = worker.unit
    return {
        "worker": worker.number,
        "pid": worker.pid,
        "state": state,
        "unit": unit and dataclasses.asdict(unit),
        "outputs": worker.outputs,
        "restarts": worker.restarts,
    }


def _stopped(usage: Usage) -> bool:
    """Whether a signal or a debugger has stopped the process."""
    return usage.state in "Tt"


def _used(pid: int | None, before: Look, after: Look) -> dict[str, Any]:
    """What a process has used between two looks."""
    now = None if pid is None else after.usage.get(pid)
    then = None if pid is None else before.usage.get(pid)
    cpu = None
    if now is not None and then is not None:
        cpu = max(0.0, now.cpu_s - then.cpu_s) / (after.at_s - before.at_s)
    return {"cpu": cpu, "pss_bytes": None if now is None else now.pss_bytes}


def _as_text(told: dict[str, Any]) -> str:
    stopped = ", stopped" if told["stopped"] else ""
    lines = [
        f"process {told['pid']}{stopped}: {told['command']}",
        f"  CPU {_share(told['cpu'])}, memory {_size(told['pss_bytes'])}",
    ]
    for number, loader in enumerate(told["loaders"]):
        lines += ["", *_loader_lines(number, loader)]
    if not told["loaders"]:
        lines += ["", f"It {NO_WORKERS}"]
    return "\n".join(lines)


def _loader_lines(number: int, loader: dict[str, Any]) -> list[str]:
    waits = "-"
    if loader["waiting"] is not None:
        waits = f"in {loader['waiting']:.0%} of {count(loader['samples'], 'look')}"
    rows = [("worker", "pid", "for", "CPU", "memory", "outputs/s", "restarts")]
    for worker in loader["workers"]:
        unit = worker["unit"]
        rows.append(
            (
                str(worker["worker"]),
                str(worker["pid"] or "-"),
                _duration(unit["seconds"]) if unit else "-",
                _share(worker["cpu"]),
                _size(worker["pss_bytes"]),
                _rate(worker["outputs_per_s"]),
                str(worker["restarts"]),
            )
        )
    does = ["does", *(_doing(worker, loader) for worker in loader["workers"])]
    lines = zip(table(rows).splitlines(), does, strict=True)
    return [
        f"loader {number} ({loader['face']}): {_rate(loader['delivered_per_s'])}"
        f" outputs/s taken, {_rate(loader['computed_per_s'])}/s computed,"
        f" {loader['ready']:,} ready",
        f"  consumer waits {waits};"
        f" {count(loader['delivered'], 'output')} taken so far;"
        f" {amount(loader['memory_bytes'])} of {amount(loader['memory_limit'])} for"
        " outputs",
        *(f"  {line}  {doing}" for line, doing in lines),
    ]


def _doing(worker: dict[str, Any], loader: dict[str, Any]) -> str:
    unit = worker["unit"]
    if unit is None or worker["state"] == "ended":
        return str(worker["state"])
    if loader["face"] == "torch":
        what = "batch"
    elif unit["count"] is None:
        what = f"next of stream {unit['stream']}"
    else:
        last = unit["first"] + unit["count"] - 1
        what = f"{unit['first']:,} to {last:,} of stream {unit['stream']}"
    at = "" if unit["record"] is None else f", at record {unit['record']:,}"
    between = " " if worker["state"] == "computing" else ": "
    return f"{worker['state']}{between}{what}{at}"


def _redraw(text: str, drawn: int) -> int:
    """Draw in the place of what was drawn last, so many lines; returns how many."""
    columns, height = shutil.get_terminal_size()
    lines = [line[: columns - 1] for line in text.splitlines()[: height - 1]]
    up = f"\x1b[{drawn}A" if drawn else ""
    sys.stdout.write(f"{up}\r\x1b[J" + "".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    return len(lines)


def _columns() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _rate(number: float | None) -> str:
    return "-" if number is None else rate(number)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _size(size: int | None) -> str:
    return "-" if size is None else amount(size)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _pid(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a process")
    return int(text)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.05 <= (seconds := float(text)) <= 3600:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.05 to 3600")
