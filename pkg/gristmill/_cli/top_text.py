"""Formats the activity of a process's loaders for a terminal."""

from __future__ import annotations

from typing import Any

from gristmill._cli.process_snapshot import NO_WORKERS
from gristmill._cli.terminal import amount, count, rate, table


def as_text(activity: dict[str, Any]) -> str:
    """Format the result of `activity_between` as lines of text."""
    stopped = ", stopped" if activity["stopped"] else ""
    lines = [
        f"process {activity['pid']}{stopped}: {activity['command']}",
        f"  CPU {_share(activity['cpu'])}, memory {_size(activity['pss_bytes'])}",
    ]
    for number, loader in enumerate(activity["loaders"]):
        lines += ["", *_loader_lines(number, loader)]
    if not activity["loaders"]:
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


def _rate(number: float | None) -> str:
    return "-" if number is None else rate(number)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _size(size: int | None) -> str:
    return "-" if size is None else amount(size)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
