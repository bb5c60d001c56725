"""Formats the activity of a process's loaders for a terminal."""

from __future__ import annotations

from typing import Any

from gristmill._cli.process_snapshot import NO_WORKERS
from gristmill._cli.terminal import (
    format_bytes,
    format_count,
    format_rate,
    format_table,
)


def format_activity(activity: dict[str, Any]) -> str:
    """Format the result of `activity_between` as lines of text."""
    stopped = ", stopped" if activity["stopped"] else ""
    lines = [
        f"process {activity['pid']}{stopped}: {activity['command']}",
        f"  CPU {_format_share(activity['cpu'])},"
        f" memory {_format_size(activity['pss_bytes'])}",
    ]
    for number, loader in enumerate(activity["loaders"]):
        lines += ["", *_loader_lines(number, loader)]
    for auto in activity["auto_workers"]:
        lines += ["", f"  {auto['text']}"]
    for sources in activity["sources"]:
        lines += ["", *_source_lines(sources)]
    if not activity["loaders"]:
        lines += ["", f"It {NO_WORKERS}"]
    return "\n".join(lines)


def _loader_lines(number: int, loader: dict[str, Any]) -> list[str]:
    waits = "-"
    if loader["waiting"] is not None:
        waits = (
            f"in {loader['waiting']:.0%} of {format_count(loader['samples'], 'look')}"
        )
    rows = [("worker", "pid", "for", "CPU", "memory", "outputs/s", "restarts")]
    for worker in loader["workers"]:
        unit = worker["unit"]
        rows.append(
            (
                str(worker["worker"]),
                str(worker["pid"] or "-"),
                _format_duration(unit["seconds"]) if unit else "-",
                _format_share(worker["cpu"]),
                _format_size(worker["pss_bytes"]),
                _format_rate(worker["outputs_per_s"]),
                str(worker["restarts"]),
            )
        )
    # `format_table` aligns columns to the right, but the last column is text.
    last_column = ["does"]
    last_column += [_describe_unit(worker, loader) for worker in loader["workers"]]
    lines = zip(format_table(rows).splitlines(), last_column, strict=True)
    return [
        f"loader {number} ({loader['face']}): {_format_rate(loader['delivered_per_s'])}"
        f" outputs/s taken, {_format_rate(loader['computed_per_s'])}/s computed,"
        f" {loader['ready']:,} ready",
        f"  consumer waits {waits};"
        f" {format_count(loader['delivered'], 'output')} taken so far;"
        f" {format_bytes(loader['memory_bytes'])} of"
        f" {format_bytes(loader['memory_limit'])} for outputs",
        *(f"  {line}  {text}" for line, text in lines),
    ]


def _source_lines(sources: dict[str, Any]) -> list[str]:
    """Return a table of what an iterator had delivered at its last `consumed()`."""
    rows = [("delivered from", "elements", "tokens", "epochs")]
    for name, count in sources.items():
        tokens, epochs = count["tokens"], count["epochs"]
        rows.append(
            (
                name,
                f"{count['elements']:,}",
                "-" if tokens is None else f"{tokens:,}",
                "-" if epochs is None else f"{epochs:.2f}",
            )
        )
    return [f"  {line}" for line in format_table(rows).splitlines()]


def _describe_unit(worker: dict[str, Any], loader: dict[str, Any]) -> str:
    """Return the state of a worker, and the unit that it computes."""
    unit = worker["unit"]
    if unit is None or worker["state"] == "ended":
        return str(worker["state"])
    if loader["face"] == "torch":
        unit_text = "batch"
    elif unit["count"] is None:
        unit_text = f"next of stream {unit['stream']}"
    else:
        last = unit["first"] + unit["count"] - 1
        unit_text = f"{unit['first']:,} to {last:,} of stream {unit['stream']}"
    record_text = "" if unit["record"] is None else f", at record {unit['record']:,}"
    separator = " " if worker["state"] == "computing" else ": "
    return f"{worker['state']}{separator}{unit_text}{record_text}"


def _format_rate(number: float | None) -> str:
    return "-" if number is None else format_rate(number)


def _format_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _format_size(size: int | None) -> str:
    return "-" if size is None else format_bytes(size)


def _format_duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
