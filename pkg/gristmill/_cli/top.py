"""``gristmill top``: shows the activity of a running process's loaders."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import time
from typing import Any

from gristmill._cli.process_snapshot import (
    ProcessSnapshot,
    loaders_of,
    no_loaders_text,
    other_layout_text,
    take_snapshot,
)
from gristmill._cli.snapshot_difference import WaitSamples, activity_between
from gristmill._cli.terminal import (
    STYLE,
    format_table,
    moves_cursor,
    shorten,
    shows_color,
)
from gristmill._cli.top_text import UNLIMITED_COLUMNS, format_activity
from gristmill._convert.errors import CommandError
from gristmill._observe import processes
from gristmill._observe.shared_words import LayoutMismatchError

DESCRIPTION = """\
Show the loaders of a running process: the output rate of each loader, how often its
consumer waits, and what each worker computes.  The process is not interrupted; `top`
reads the memory that it shares with its workers.  The process must belong to the same
user, and its loaders must have workers.

Without PID, list the processes that have such loaders.
"""

EPILOG = """\
columns:
  limit        data if the consumer waits for 10 % of the time or more, else consumer
  waits        share of looks at which the consumer was waiting for an output
  ready        outputs that are computed and not yet taken
  for          time since the worker began its present batch or range of records
  CPU          share of one core
  memory       of a worker; each process has its share of common memory (PSS)
  outputs/s    outputs that a worker computed

A terminal shows the columns that fit, in color unless NO_COLOR is set.
If the program calls consumed() of an iterator, the last result is shown, too.

examples:
  gristmill top
  gristmill top 4242
  gristmill top 4242 --once --json | jq '.loaders[0].waiting'
"""
# The number of times per second to check whether the consumer is waiting.
SAMPLES_PER_S = 50


def add_to(commands: Any) -> None:
    """Add the command to the parser of `gristmill`."""
    purpose = "show the activity of a running process's loaders"
    parser = commands.add_parser(
        "top", help=purpose, description=DESCRIPTION, epilog=EPILOG, **STYLE
    )
    add = parser.add_argument
    add(
        "pid",
        nargs="?",
        type=_parse_pid,
        metavar="PID",
        help="process id of the program that iterates",
    )
    add("--once", action="store_true", help="print once, and exit")
    add("--json", action="store_true", help="print JSON objects, one per line")
    add(
        "--interval",
        type=_parse_seconds,
        default=1.0,
        metavar="S",
        help="seconds between two updates (default: %(default)g)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show one process, or list all that have loaders with workers."""
    if arguments.pid is None:
        _list_processes(arguments.json)
        return 0
    try:
        _watch(arguments)
    except KeyboardInterrupt:  # The normal way to quit.
        return 0
    return 0


def _list_processes(as_json: bool) -> None:
    """Print the processes that have loaders with workers."""
    rows = [("PID", "loaders", "workers", "command")]
    unreadable = []
    for pid in processes.list_pids():
        try:
            loaders = loaders_of(pid)
        except (OSError, CommandError):  # It has ended, or we may not read it.
            continue
        except LayoutMismatchError:
            unreadable.append(pid)
            continue
        if not loaders or processes.has_other_pid_namespace(pid):
            continue
        workers = sum(len(snapshot.workers) for _, snapshot in loaders.values())
        command = processes.read_command(pid)
        if as_json:
            fields = {"loaders": len(loaders), "workers": workers, "command": command}
            print(json.dumps({"pid": pid, **fields}))
        rows.append((str(pid), str(len(loaders)), str(workers), command))
    for pid in unreadable:
        print(f"gristmill: {other_layout_text(pid)}", file=sys.stderr)
    if len(rows) == 1 and not unreadable:
        raise CommandError("found no process of yours that has a loader with workers.")
    if len(rows) > 1 and not as_json:
        # `table` aligns columns to the right, but the command is text.
        numbers = format_table([row[:3] for row in rows]).splitlines()
        lines = [f"{line}  {row[3]}" for line, row in zip(numbers, rows, strict=True)]
        print("\n".join(shorten(line, _count_columns()) for line in lines))


def _watch(arguments: argparse.Namespace) -> None:
    """Print a process's activity, once or repeatedly until it or the user ends it."""
    pid = arguments.pid
    before = take_snapshot(pid)
    if not before.loaders:
        raise CommandError(no_loaders_text(pid))
    in_place = moves_cursor() and not (arguments.json or arguments.once)
    drawn_lines = 0
    while True:
        wait_samples = _sample_waits(before, arguments.interval)
        try:
            after = take_snapshot(pid)
        except CommandError:
            if arguments.once:
                raise
            if not arguments.json:
                print(f"Process {pid} has ended.")
            return
        if arguments.once and not after.loaders:
            raise CommandError(no_loaders_text(pid))
        activity = activity_between(before, after, wait_samples)
        if arguments.json:
            print(json.dumps(activity), flush=True)
        elif in_place:
            drawn_lines = _redraw(_format(activity), drawn_lines)
        else:
            end = "\n" if arguments.once else "\n\n"
            print(_format(activity), end=end, flush=True)
        if arguments.once:
            return
        before = after


def _sample_waits(snapshot: ProcessSnapshot, seconds: float) -> dict[int, WaitSamples]:
    """Check repeatedly for `seconds` whether the consumers of the loaders wait.

    Returns:
        The samples of each loader, by its inode.
    """
    sample_count = max(1, round(seconds * SAMPLES_PER_S))
    waiting_counts = dict.fromkeys(snapshot.loaders, 0)
    for _ in range(sample_count):
        time.sleep(seconds / sample_count)
        for inode, (arena, _) in snapshot.loaders.items():
            waiting_counts[inode] += arena.is_consumer_waiting()
    return {
        inode: WaitSamples(waiting, sample_count)
        for inode, waiting in waiting_counts.items()
    }


def _format(activity: dict[str, Any]) -> str:
    """Format an activity for the standard output."""
    return format_activity(activity, _count_columns(), shows_color())


def _redraw(text: str, drawn_lines: int) -> int:
    """Draw `text` over the last `drawn_lines` lines, and return its number of lines."""
    lines = text.splitlines()[: shutil.get_terminal_size().lines - 1]
    up = f"\x1b[{drawn_lines}A" if drawn_lines else ""
    sys.stdout.write(f"{up}\r\x1b[J" + "".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    return len(lines)


def _count_columns() -> int:
    """Return the columns that a line of the standard output may have."""
    if not sys.stdout.isatty():
        return UNLIMITED_COLUMNS
    # A character in the last column may already begin the next line.
    return shutil.get_terminal_size().columns - 1


def _parse_pid(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process id")
    return int(text)


def _parse_seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.05 <= (seconds := float(text)) <= 3600:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.05 to 3600")
